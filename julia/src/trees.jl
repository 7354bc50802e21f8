# Trees: Python's containers as Julia's. Python describes the structure of the arguments as plain
# data, and gets that of the results in the same form, as a vector in place of each tuple:
#
#   nothing                      None
#   0, 1, ...                    an array, by its number
#   ("tuple", parts...)          a tuple is a Tuple
#   ("list", parts...)           a list is a Vector if its parts have one type, else a Tuple
#   ("named", names, parts...)   a dict, dataclass or namedtuple is a NamedTuple
#   ("value", x)                 a static field of a dataclass

"""The argument that a description stands for."""
build(::Nothing, ::Vector{Any}) = nothing
build(number::Integer, arrays::Vector{Any}) = arrays[number + 1]

function build(@nospecialize(node::Tuple), arrays::Vector{Any})
    kind, rest... = items(node)
    kind == "value" && return only(rest)
    names = kind == "named" ? Symbol[Symbol(name) for name in items(popfirst!(rest))] : Symbol[]
    parts = Any[build(part, arrays) for part in rest]
    kind == "named" && return NamedTuple{Tuple(names)}(Tuple(parts))
    return kind == "list" ? as_list(parts) : Tuple(parts)
end

"""
A Vector of the parts' type, or a Tuple if they have several. Numbers stay in a Vector of Any:
a vector of numbers is an array in Julia.
"""
function as_list(parts::Vector{Any})
    isempty(parts) && return parts
    T = typeof(first(parts))
    all(part -> typeof(part) === T, parts) || return Tuple(parts)
    return T <: Number ? parts : T[part for part in parts]
end

"""Add the arrays and numbers of a result to `arrays`; gives the description of its structure."""
function flatten!(arrays::Vector{Any}, @nospecialize(y))
    y === nothing && return nothing
    if y isa Number || y isa AbstractArray{<:Number}
        push!(arrays, y)
        return length(arrays) - 1
    end
    y isa Tuple && return Any["tuple", flatten_all!(arrays, items(y))...]
    y isa AbstractVector && return Any["list", flatten_all!(arrays, y)...]
    y isa NamedTuple || throw(unfit_result(y))
    names = Any[String(name) for name in keys(y)]
    return Any["named", names, flatten_all!(arrays, items(values(y)))...]
end

flatten_all!(arrays, parts) = Any[flatten!(arrays, part) for part in parts]

function unfit_result(@nospecialize(y))
    return Wrong(
        "InvalidArgumentError",
        "a Julia function must return arrays, numbers or nothing, and tuples, named tuples and " *
            "vectors of these, got a $(nameof(typeof(y)))",
    )
end

"""The number of the argument that has an array of this number, both from 0."""
function argument_with(@nospecialize(structure::Tuple), number::Int)
    return findfirst(part -> holds(part, number), items(structure)[2:end]) - 1
end

holds(part, number::Int) = part === number
holds(@nospecialize(part::Tuple), number::Int) = first(part) != "value" &&
    any(one -> holds(one, number), items(part))
