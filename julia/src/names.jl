"""
    use_project(folder)

Put a user's Julia project on the load path.
"""
function use_project(folder::String)
    if !any(isfile(joinpath(folder, name)) for name in ("Project.toml", "JuliaProject.toml"))
        throw(Wrong(
            "InvalidArgumentError",
            "julia_project '$folder' has no Project.toml; give the folder of a Julia project",
        ))
    end
    folder in LOAD_PATH || push!(LOAD_PATH, folder)
    return nothing
end

"""
    find_function(name, project) -> the function

"Module.function" of a package, of the project or of PyReactant; a name without a module is
Base's, operators too. Names are looked up, never evaluated.
"""
function find_function(name::String, project::String)
    isempty(project) || use_project(project)
    path, _, last_name = rpartition(name)
    is_name(last_name) || throw(unfit_name(name))
    found = isempty(path) ? Base : find_module(path, name)
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

function find_module(path::AbstractString, name::String)
    parts = split(path, '.')
    all(Base.isidentifier, parts) || throw(unfit_name(name))
    top = find_package(String(parts[1]), name)
    for part in parts[2:end]
        symbol = Symbol(part)
        if !isdefined(top, symbol) || !(getglobal(top, symbol) isa Module)
            throw(Wrong("InvalidArgumentError", "Julia module $top has no module '$part'"))
        end
        top = getglobal(top, symbol)
    end
    return top
end

function find_package(top::String, name::String)
    top == "PyReactant" && return PyReactant
    top == "Base" && return Base
    id = Base.identify_package(top)
    if id === nothing
        throw(Wrong(
            "InvalidArgumentError",
            "there is no Julia module '$top' (for '$name'); give julia_project= with the " *
                "folder of the project that has it, or add it to Julia's project",
        ))
    end
    return Base.require(id)
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
