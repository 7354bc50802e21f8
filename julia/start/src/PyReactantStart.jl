"""
Loads PyReactant without two warnings of Reactant's. A package of its own, because it must be
there, compiled, before Reactant is: a logger that Julia compiles at each start takes 0.6 s of it.
"""
module PyReactantStart

using Base.CoreLogging: CoreLogging, AbstractLogger, LogLevel, Warn, global_logger

"""
What `rest` logs, but for warnings of Reactant's extension for Python. With those it says that it
cannot import jax and tensorflow, which are kept out on purpose
(ext/ReactantPythonCallExt/ReactantPythonCallExt.jl:19-41), and shows the stack of each.
"""
struct WithoutImports <: AbstractLogger
    rest::AbstractLogger
end

CoreLogging.min_enabled_level(logger::WithoutImports) = CoreLogging.min_enabled_level(logger.rest)
CoreLogging.catch_exceptions(logger::WithoutImports) = CoreLogging.catch_exceptions(logger.rest)

function CoreLogging.shouldlog(logger::WithoutImports, level, from, group, id)
    from isa Module && nameof(from) === :ReactantPythonCallExt && level == Warn && return false
    return CoreLogging.shouldlog(logger.rest, level, from, group, id)
end

function CoreLogging.handle_message(logger::WithoutImports, record...; more...)
    return CoreLogging.handle_message(logger.rest, record...; more...)
end

"""
The module PyReactant of the load path, with its extension for Python. PythonCall must be loaded.
Of an extension that fails Julia only logs the error.
"""
function load()
    before = global_logger()
    global_logger(WithoutImports(before))
    try
        found = Base.require(Main, :PyReactant)
        check_extension(found)
        return found
    finally
        global_logger(before)
    end
end

function check_extension(found::Module)
    Base.get_extension(found, :PyReactantPythonCallExt) === nothing || return nothing
    return error(
        "PyReactant must load with its extension for Python, but did not; the error above, if " *
            "there is one, says why (PythonCall must be loaded first)",
    )
end

precompile(load, ())
precompile(check_extension, (Module,))
precompile(CoreLogging.min_enabled_level, (WithoutImports,))
precompile(CoreLogging.shouldlog, (WithoutImports, LogLevel, Module, Symbol, Symbol))

end
