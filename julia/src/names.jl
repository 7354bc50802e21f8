"""
    use_project(folder) -> its project file

Put a user's Julia project on the load path.
"""
function use_project(folder::String)
    files = [joinpath(folder, name) for name in ("JuliaProject.toml", "Project.toml")]
    at = findfirst(isfile, files)
    if at === nothing
        throw(Wrong(
            "InvalidArgumentError",
            "julia_project '$folder' has no Project.toml; give the folder of a Julia project",
        ))
    end
    folder in LOAD_PATH || push!(LOAD_PATH, folder)
    return files[at]
end

"""
    find_function(name, project) -> the function

"Module.function" of the project's own package, of one that it depends on, of another package, or
of PyReactant; a name without a module is Base's, operators too. Names are looked up, never
evaluated.
"""
function find_function(name::String, project::String)
    file = isempty(project) ? "" : use_project(project)
    path, _, last_name = rpartition(name)
    is_name(last_name) || throw(unfit_name(name))
    found = isempty(path) ? Base : find_module(path, name, file)
    symbol = Symbol(last_name)
    if !isdefined(found, symbol)
        throw(Wrong("InvalidArgumentError", "Julia module $found has no function '$last_name'"))
    end
    value = getglobal(found, symbol)
    if !isempty(methods(value))
        return value
    end
    throw(Wrong("InvalidArgumentError", "'$name' is not a Julia function, but a $(typeof(value))"))
end

"""
    body_of(name, project) -> (identity of the function, age of its newest method)

Another value once the name leads to another function, or a method of it was redefined.
"""
function body_of(name::String, project::String)
    f = find_function(name, project)
    return objectid(f), maximum(method.primary_world for method in methods(f))
end

function find_module(path::AbstractString, name::String, file::String)
    parts = split(path, '.')
    all(Base.isidentifier, parts) || throw(unfit_name(name))
    top = find_package(String(parts[1]), name, file)
    for part in parts[2:end]
        symbol = Symbol(part)
        if !isdefined(top, symbol) || !(getglobal(top, symbol) isa Module)
            throw(Wrong("InvalidArgumentError", "Julia module $top has no module '$part'"))
        end
        top = getglobal(top, symbol)
    end
    return top
end

function find_package(top::String, name::String, file::String)
    top == "PyReactant" && return PyReactant
    top == "Base" && return Base
    id = identify(top, file)
    if id === nothing
        throw(Wrong(
            "InvalidArgumentError",
            "there is no Julia module '$top' (for '$name'); give julia_project= with the " *
                "folder of the project that has it, or add it to Julia's project",
        ))
    end
    isempty(file) && return Base.require(id)
    check_alone(id, file)
    found = Base.require(id)
    id == own_package(file) && check_source(id, found, file)
    return found
end

"""
A package by its name and UUID: the project's own, one that it depends on, or what the load path
has. By its name alone, the load path would give another project's package of that name.
"""
function identify(top::String, file::String)
    isempty(file) && return Base.identify_package(top)
    own = own_package(file)
    own !== nothing && own.name == top && return own
    uuid = get(get(Base.parsed_toml(file), "deps", Dict{String, Any}()), top, nothing)
    uuid isa String && return Base.PkgId(Base.UUID(uuid), top)
    return Base.identify_package(top)
end

"""The package that a project file describes; nothing if it has no name."""
function own_package(file::String)
    name = get(Base.parsed_toml(file), "name", nothing)
    return name isa String ? Base.project_file_name_uuid(file, name) : nothing
end

"""Refuse a package if another one of its name is loaded: messages and reports name only that."""
function check_alone(id::Base.PkgId, file::String)
    for other in collect(keys(Base.loaded_modules))
        other.name == id.name && other != id || continue
        path = pathof(Base.loaded_modules[other])
        throw(Wrong(
            "StateError",
            "the Julia package $(id.name) ($(id.uuid)) of $file cannot be used: another package " *
                "of that name ($(other.uuid), $path) is loaded in this process; rename one of " *
                "them, or use each in a process of its own",
        ))
    end
    return nothing
end

"""
The source files of each project's package when Julia had loaded it: the time of their last change,
their size, and a hash of their content.
"""
const SOURCES = Dict{Base.PkgId, Dict{String, Tuple{Float64, Int64, UInt}}}()

"""
Check that a package was loaded from this project, and that its files are as they were then: Julia
does not read them again. With Revise in the process it does.
"""
function check_source(id::Base.PkgId, loaded::Module, file::String)
    folder, path = realpath(dirname(file)), pathof(loaded)
    if path === nothing || !startswith(realpath(path), joinpath(folder, ""))
        throw(Wrong(
            "StateError",
            "the Julia package $(id.name) of $folder cannot be used: this process has loaded a " *
                "copy of it from $path; use each in a process of its own",
        ))
    end
    any(other -> other.name == "Revise", keys(Base.loaded_modules)) && return nothing
    before = get!(() -> sources_of(dirname(path)), SOURCES, id)
    for (source, was) in before
        is_unchanged(source, was) && continue
        throw(Wrong(
            "StateError",
            "$source has changed since Julia loaded the package $(id.name), and Julia does not " *
                "read it again; start a new process, or load Revise before the package",
        ))
    end
    return nothing
end

function sources_of(folder::String)
    found = Dict{String, Tuple{Float64, Int64, UInt}}()
    for (parent, _, names) in walkdir(folder), name in names
        endswith(name, ".jl") || continue
        path = joinpath(parent, name)
        found[path] = (mtime(path), filesize(path), hash(read(path)))
    end
    return found
end

function is_unchanged(path::String, (time, size, content)::Tuple{Float64, Int64, UInt})
    isfile(path) || return false
    (mtime(path), filesize(path)) == (time, size) && return true
    return hash(read(path)) == content
end

"""Everything before the last dot, the dot, the rest; operators may have dots of their own."""
function rpartition(name::String)
    (isempty(name) || Base.isoperator(Symbol(name))) && return "", "", name
    at = findlast('.', name)
    at === nothing && return "", "", name
    return name[begin:prevind(name, at)], ".", name[nextind(name, at):end]
end

is_name(part) = Base.isidentifier(part) || Base.isoperator(Symbol(part))

function unfit_name(name)
    return Wrong(
        "InvalidArgumentError",
        "a Julia function is named as 'Module.function', 'sum' or '*', got '$name'",
    )
end
