# The function that Reactant compiles in place of the program's: it calls that one and records the
# results. It has no fields, because Reactant would trace them (TracedUtils.jl:321).

"""
One program while it is traced.

`wanted` are the shardings of the results: none, one for all, or one for each; nothing leaves one
to XLA. `structure` and `results` describe the arguments and the results (trees.jl), `outputs` has
the element type and the size of each result. `mesh` is that of the arguments, if they have one, and
`calls` Reactant's list of the functions that it is tracing.
"""
mutable struct Trace
    const name::String
    const f::Any
    const static::NamedTuple
    const structure::Tuple
    const wanted::Vector{Any}
    const mesh::Union{Nothing, DeviceMesh}
    results::Any
    outputs::Vector{Any}
    calls::Vector
end

function Trace(
    name::String,
    @nospecialize(f),
    @nospecialize(static::NamedTuple),
    @nospecialize(structure::Tuple),
    wanted::Vector{Any},
    mesh::Union{Nothing, DeviceMesh},
)
    return Trace(name, f, static, structure, wanted, mesh, nothing, Any[], Any[])
end

"""Call `f` with `traced` as the program of `trace`; errors say where the program threw them."""
function tracing(f, trace::Trace)
    try
        return task_local_storage(f, :pyreactant_trace, trace)
    catch error
        error isa Wrong && rethrow()
        frames = stacktrace(first(catch_backtrace(), 1000)) # an overflow has very many
        place = place_of(trace.f, frames, trace.calls)
        isempty(place) ? rethrow() : rethrow(Thrown(error, place))
    end
end

function traced(arrays...)
    trace = task_local_storage(:pyreactant_trace)::Trace
    args = arguments(trace, arrays)
    result = isempty(trace.static) ? trace.f(args...) : trace.f(args...; trace.static...)
    return results(trace, result)
end

# Reactant interprets all code that runs while it traces, and compiles that anew for each type. It
# calls these two as they are: they only take trees apart and put them together.
function __init__()
    Reactant.@skip_rewrite_func arguments
    Reactant.@skip_rewrite_func results
end

"""The arguments of the program's function."""
function arguments(trace::Trace, @nospecialize(arrays::Tuple))
    trace.calls = Reactant.Compiler.debugcache()
    return build(trace.structure, Any[as_argument(x) for x in items(arrays)])
end

"""The arrays that the program's function returned; its trace remembers their structure."""
function results(trace::Trace, @nospecialize(result))
    found = Any[]
    trace.results = flatten!(found, result)
    if isempty(found)
        throw(Wrong(
            "InvalidArgumentError",
            "program '$(trace.name)' must return an array or a tree of arrays, got $(repr(result))",
        ))
    end
    if length(trace.wanted) > 1 && length(trace.wanted) != length(found)
        throw(Wrong(
            "InvalidArgumentError",
            "program '$(trace.name)' must return the same structure whenever it is traced, got " *
                "$(length(found)) arrays after $(length(trace.wanted))",
        ))
    end
    foreach(y -> element_name(Reactant.unwrapped_eltype(y)), found) # or there is no such array
    arrays = Any[as_output(y) for y in found]
    trace.outputs = Any[(Reactant.unwrapped_eltype(y), size(y)) for y in arrays]
    return Tuple(Any[constrained(y, wanted(trace, i)) for (i, y) in enumerate(arrays)])
end

# Scalars are 0-d arrays in Python and numbers in Julia.
as_argument(x::AbstractArray{<:Any, 0}) = x[]
as_argument(x) = x

# A copy is a new result even if the function returns an argument or the same array twice. Otherwise
# the executable would have fewer results than the program, in an unknown order
# (compiler/Compiler.jl:1037-1050). In the compiled program the copy costs nothing.
as_output(y::Reactant.TracedRArray) = copy(y)
as_output(y::Reactant.TracedRNumber{T}) where {T} = Reactant.TracedRArray{T, 0}((), y.mlir_data, ())
as_output(y::Number) = as_output(fill(y))
as_output(y::AbstractArray) = copy(Reactant.promote_to(Reactant.TracedRArray, y))

"""The sharding of a result, by its number from 1; nothing leaves it to XLA."""
function wanted(trace::Trace, i::Int)
    s = isempty(trace.wanted) ? nothing : trace.wanted[min(i, end)]
    s === nothing || return s
    # XLA might cut a result without elements, and Reactant fails on that.
    is_empty = prod(last(trace.outputs[i])) == 0
    return is_empty && trace.mesh !== nothing ?
        ArraySharding(trace.mesh, Vector{String}[]) :
        nothing
end

constrained(y, ::Nothing) = y

# A sharding constraint: otherwise XLA chooses where results lie (Ops.jl:3455). Where it does not
# fit there is none: Python knows the output's number and raises the error.
function constrained(y, s::ArraySharding)
    fits(s, size(y)) || return y
    target = to_reactant(held_as(s, size(y)))
    return target isa Reactant.Sharding.NoSharding ? y : Reactant.Ops.sharding_constraint(y, target)
end
