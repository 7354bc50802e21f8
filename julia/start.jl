# Loads PyReactant into a Julia that juliacall started. Python includes this file into a module
# of its own and calls `load`; nothing else of Python's is evaluated as text.

"""
Drops the two warnings with which Reactant's Python extension says that it cannot import jax
and tensorflow. They are kept out on purpose: either would bring a second XLA into the process
(ext/ReactantPythonCallExt/ReactantPythonCallExt.jl:19-41). All other messages pass.
"""
struct WithoutImportWarnings <: Base.CoreLogging.AbstractLogger
    parent::Base.CoreLogging.AbstractLogger
end

const EXPECTED = ("Failed to import jax", "Failed to import tensorflow")

Base.CoreLogging.min_enabled_level(l::WithoutImportWarnings) = Base.CoreLogging.min_enabled_level(
    l.parent,
)
Base.CoreLogging.shouldlog(l::WithoutImportWarnings, args...) = Base.CoreLogging.shouldlog(
    l.parent,
    args...,
)
Base.CoreLogging.catch_exceptions(l::WithoutImportWarnings) = Base.CoreLogging.catch_exceptions(
    l.parent,
)

function Base.CoreLogging.handle_message(
    l::WithoutImportWarnings,
    level,
    message,
    args...;
    kwargs...,
)
    any(startswith(string(message), text) for text in EXPECTED) && return nothing
    return Base.CoreLogging.handle_message(l.parent, level, message, args...; kwargs...)
end

"""
    load(folders::Tuple) -> Module

Push each folder with a Project.toml on LOAD_PATH, load PyReactant from there and give it back.
"""
function load(folders::Tuple)
    for folder in folders
        folder in LOAD_PATH || push!(LOAD_PATH, folder)
    end
    logger = WithoutImportWarnings(Base.CoreLogging.current_logger())
    return Base.CoreLogging.with_logger(logger) do
        Base.require(Main, :PyReactant)
    end
end
