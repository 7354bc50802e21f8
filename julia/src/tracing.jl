# The function that Reactant compiles in place of the program's: it calls that one and records the
# results. It has no fields, because Reactant would trace them (TracedUtils.jl:321).

"""One compilation: the function, the shardings of its results, and the results."""
mutable struct Trace
    const f::Any
    const static::NamedTuple
    const shardings::Vector{ArraySharding}
    const constraints::Vector{Vector{Any}}
    single::Bool
    outputs::Any
end

function Trace(f, static::NamedTuple, shardings::Vector{ArraySharding})
    return Trace(f, static, shardings, map(constraints_of, shardings), true, ())
end

const MOST_DIMENSIONS = 16

"""
Reactant's form of a sharding for results of 0, 1, ... dimensions, nothing if it has more entries.
It is made before tracing, because Reactant interprets all code that runs while tracing.
"""
function constraints_of(s::ArraySharding)
    return Any[n < length(s.spec) ? nothing : to_reactant(padded(s, n)) for n in 0:MOST_DIMENSIONS]
end

"""Call `f` with `traced` as the program of `trace`."""
tracing(f, trace::Trace) = task_local_storage(f, :pyreactant_trace, trace)

function traced(args...)
    trace = task_local_storage(:pyreactant_trace)::Trace
    inputs = map(as_argument, args)
    result = isempty(trace.static) ? trace.f(inputs...) : trace.f(inputs...; trace.static...)
    trace.single = !(result isa Tuple)
    outputs = map(as_output, trace.single ? (result,) : result)
    trace.outputs = map(y -> (Reactant.unwrapped_eltype(y), size(y)), outputs)
    isempty(trace.constraints) && return outputs
    return map(constrained, outputs, constraints_for(trace, length(outputs)))
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

function as_output(y)
    throw(Wrong(
        "InvalidArgumentError",
        "the Julia function must return an array, a number or a tuple of them, got a " *
            "$(nameof(typeof(y)))",
    ))
end

function constraints_for(trace::Trace, n::Int)
    given = trace.constraints
    length(given) == n && return Tuple(given)
    length(given) == 1 && return ntuple(_ -> only(given), n)
    throw(Wrong(
        "ShardingError",
        "the Julia function returned $n arrays, but $(length(given)) output shardings were given",
    ))
end

# A sharding constraint: otherwise XLA chooses where results lie (Ops.jl:3455).
function constrained(y, constraints)
    s = constraints[ndims(y) + 1]
    s === nothing &&
        throw(Wrong(
            "ShardingError",
            "the Julia function returned an array of $(ndims(y)) dimensions, fewer than its " *
                "output sharding's partition spec has entries",
        ))
    return s isa Reactant.Sharding.NoSharding ? y : Reactant.Ops.sharding_constraint(y, s)
end
