"""
One value of a program, found while the program's function runs: `operation` computes it from the
arrays of other values. Calls of the compiled program compute the values again, and do not call the
function.
"""
mutable struct Value
    const operation::Any
    const operands::Vector{Value}
    const type::DataType
    const shape::Dims
end

"""The operation of a value that each call of the program gives: its argument of this number."""
struct Argument
    number::Int
end

"""The operation of a value that was there when the program was traced."""
struct Constant
    data::Array
end

(c::Constant)() = c.data

mutable struct TracedRNumber{T} <: RNumber{T}
    paths::Tuple
    mlir_data::Value
end

mutable struct TracedRArray{T, N} <: RArray{TracedRNumber{T}, N}
    paths::Tuple
    mlir_data::Value
    shape::Dims{N}
end

const Traced = Union{TracedRNumber, TracedRArray}

as_array(v::Value) = TracedRArray{v.type, length(v.shape)}((), v, v.shape)
as_number(v::Value) = TracedRNumber{v.type}((), v)

Base.size(x::TracedRArray) = x.shape
Base.copy(x::TracedRArray) = as_array(value(x))
Base.show(io::IO, x::Traced) = print(io, typeof(x), "(...)")
Base.show(io::IO, ::MIME"text/plain", x::Traced) = show(io, x)

unwrapped_eltype(::AbstractArray{T}) where {T} = unwrapped_eltype(T)
unwrapped_eltype(::T) where {T <: Number} = unwrapped_eltype(T)
unwrapped_eltype(::Type{T}) where {T} = T
unwrapped_eltype(::Type{TracedRNumber{T}}) where {T} = T

promote_to(::Type{TracedRArray}, x::TracedRArray) = x
promote_to(::Type{TracedRArray}, x::Union{Number, AbstractArray}) = as_array(value(x))

"""What cannot be recorded fails: with the values of the trace it would be wrong later."""
cannot_record(what) = error("the stand-in for Reactant cannot record $what")

"""The value that an array or a number stands for; what was not traced is copied as it is now."""
value(x::TracedRArray) = x.mlir_data
value(x::TracedRNumber) = x.mlir_data
value(x::Number) = constant(fill(x))
value(x::AbstractArray) = constant(Array(x))
value(x::AbstractArray{<:TracedRNumber}) = record(map(alone, vec(collect(x)))...) do parts...
    return reshape([only(part) for part in parts], size(x))
end

constant(data::Array) = Value(Constant(data), Value[], eltype(data), size(data))

"""
The value of a number. Within a broadcast a number stands for its values at all places (`lane`), and
is no number that an array could hold.
"""
function alone(x::TracedRNumber)
    isempty(x.mlir_data.shape) || cannot_record("operations on arrays within a broadcast")
    return x.mlir_data
end

"""
The value that `operation` computes from the arrays of these. Its type and shape are those that it
has for ones, because they cannot depend on values.
"""
function record(operation, operands::Value...)
    found = operation(map(ones_like, operands)...)
    return Value(operation, Value[operands...], eltype(found), size(found))
end

ones_like(v::Value) = fill(unit(v.type), v.shape)

unit(::Type{T}) where {T} = T(1)
unit(::Type{T}) where {T <: ReactantFloat8} = reinterpret(T, 0x01)

"""A program: all values that its results need, each after its operands."""
struct Program
    values::Vector{Value}
    results::Vector{Value}
end

function Program(results::Vector{Value})
    values, done, open = Value[], Base.IdSet{Value}(), reverse(results)
    while !isempty(open)
        v = last(open)
        missing_ = filter(!in(done), v.operands)
        if v in done || isempty(missing_)
            pop!(open)
            v in done || push!(values, v)
            push!(done, v)
        else
            append!(open, reverse(missing_))
        end
    end
    return Program(values, results)
end

"""The results of a program for these arguments."""
function compute(program::Program, arguments::Vector{Any})
    known = IdDict{Value, Array}()
    for v in program.values
        known[v] = v.operation isa Argument ?
            arguments[v.operation.number] :
            computed(v, Any[known[x] for x in v.operands])
    end
    return Array[known[v] for v in program.results]
end

function computed(v::Value, operands::Vector{Any})
    found = v.operation(operands...)
    (eltype(found), size(found)) == (v.type, v.shape) ||
        cannot_record("$(v.operation), whose result depends on values")
    return found
end

"""
What tracing a function found; `written` says for each argument whether it was written to, and
`taken` the number of the argument that was put into it as a whole, or 0.
"""
struct Trace
    samples::Vector{Any} # an array that is given twice has one sample
    written::Vector{Bool}
    taken::Vector{Int}
    found::Vector{Any} # arrays and numbers
    single::Bool
end

"""Call `f` with arrays like `args`; numbers and whatever else is given are frozen."""
function trace(@nospecialize(f), args::Vector{Any})
    samples = Any[sample(x, i) for (i, x) in enumerate(args)][aliases(args)]
    before = Any[x isa TracedRArray ? value(x) : nothing for x in samples]
    result = f(samples...)
    written = Bool[b !== nothing && value(x) !== b for (x, b) in zip(samples, before)]
    taken = Int[w ? number_of(value(x)) : 0 for (w, x) in zip(written, samples)]
    found = result isa Tuple ? Any[result...] : Any[result]
    return Trace(samples, written, taken, found, !(result isa Tuple))
end

number_of(v::Value) = v.operation isa Argument ? v.operation.number : 0

Program(t::Trace) = Program(Value[value(y) for y in t.found])

"""For each argument the number of the first that is the same array: they are traced as one."""
aliases(args) = Int[findfirst(y -> y === x, args) for x in args]

sample(x, _) = x
function sample(x::ConcreteIFRTArray{T, N}, number::Int) where {T, N}
    x.donated && error("$(typeof(x)) has already been donated!")
    return as_array(Value(Argument(number), Value[], T, size(x)))
end
