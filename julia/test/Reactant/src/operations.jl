# Operations on arrays.

"""Arrays in a broadcast."""
struct TracedStyle{N} <: Broadcast.AbstractArrayStyle{N} end
TracedStyle{M}(::Val{N}) where {M, N} = TracedStyle{N}()
Base.BroadcastStyle(::Type{<:TracedRArray{T, N}}) where {T, N} = TracedStyle{N}()

Base.copy(bc::Broadcast.Broadcasted{<:TracedStyle}) = as_array(places(bc, length.(axes(bc))))

function Broadcast.materialize!(
    ::Broadcast.BroadcastStyle,
    x::TracedRArray{T},
    bc::Broadcast.Broadcasted,
) where {T}
    x.mlir_data = places(Broadcast.broadcasted(T, bc), size(x))
    return x
end

Base.copyto!(x::TracedRArray, y::TracedRArray) = x .= y

"""A broadcast's values at all places. As in Reactant, its function is called once, to trace it."""
places(bc, shape::Dims) = spread(value(lane(bc, shape)), shape)

# An array is, within the function, a number that stands for the values at all places.
lane(x, ::Dims) = x
lane(x::Ref, ::Dims) = x[]
lane(x::TracedRNumber, ::Dims) = as_number(alone(x))
lane(x::AbstractArray, shape::Dims) = as_number(spread(value(x), shape))
lane(x::Tuple, shape::Dims) = lane(collect(x), shape)
function lane(bc::Broadcast.Broadcasted, shape::Dims)
    found = bc.f((lane(x, shape) for x in bc.args)...)
    found isa Number || cannot_record("a broadcast of $(bc.f), which gives $(typeof(found))")
    return found
end

"""The value repeated along dimensions of one element, and those that it does not have."""
function spread(v::Value, shape::Dims)
    v.shape == shape && return v
    return Value(x -> (similar(x, shape) .= x), Value[v], v.type, shape)
end

Base.map(f, x::TracedRArray, more::AbstractArray...) = f.(x, more...)

struct Transposed
    order::Tuple
end

(t::Transposed)(x) = permutedims(x, t.order)

function Base.permutedims(x::TracedRArray{T, N}, order) where {T, N}
    to = Tuple(order)
    isperm(to) && length(to) == N || throw(ArgumentError("no permutation of $N dimensions: $order"))
    v = value(x)
    return as_array(Value(Transposed(to), Value[v], T, ntuple(i -> v.shape[to[i]], N)))
end
Base.permutedims(x::TracedRArray{T, 2}) where {T} = permutedims(x, (2, 1))
Base.transpose(x::TracedRArray{T, 2}) where {T} = permutedims(x, (2, 1))
Base.transpose(x::TracedRArray{T, 1}) where {T} = reshape(x, 1, :)
Base.adjoint(x::TracedRArray{T}) where {T} = transpose(T <: Complex ? conj.(x) : x)

struct Product
    precision::PrecisionConfig.T
end

(::Product)(x, y) = x * y

function product(x::AbstractArray, y::AbstractArray)
    a, b = value(x), value(y)
    size(x, 2) == size(y, 1) || throw(DimensionMismatch("$(size(x)) times $(size(y))"))
    # The real one allocates the result with this type, and fails where Julia has none.
    isconcretetype(Base.promote_op(*, a.type, b.type)) ||
        throw(MethodError(LinearAlgebra.mul!, (a.type, b.type)))
    T = eltype(fill(unit(a.type), 1, 1) * fill(unit(b.type), 1, 1))
    shape = (a.shape[1], b.shape[2:end]...)
    return as_array(Value(Product(PRECISION[]), Value[a, b], T, shape))
end

Base.:*(x::TracedRArray{T, 2}, y::TracedRArray{S, 1}) where {T, S} = product(x, y)
Base.:*(x::TracedRArray{T, 2}, y::TracedRArray{S, 2}) where {T, S} = product(x, y)
Base.:*(x::TracedRArray{T, 2}, y::AbstractVector) where {T} = product(x, y)
Base.:*(x::TracedRArray{T, 2}, y::AbstractMatrix) where {T} = product(x, y)
Base.:*(x::AbstractMatrix, y::TracedRArray{T, 1}) where {T} = product(x, y)
Base.:*(x::AbstractMatrix, y::TracedRArray{T, 2}) where {T} = product(x, y)

const REDUCTIONS = (+, *, max, min, &, |, xor, Base.add_sum, Base.mul_prod)
known(op) = op in REDUCTIONS || cannot_record("a reduction by $op")

function Base.mapreduce(f, op, x::TracedRArray; dims = :, init = nothing)
    known(op)
    v = value(f === identity ? x : f.(x))
    if dims === (:)
        whole = as_number(record(a -> fill(reduce(op, a)), v))
        return init === nothing ? whole : op(init, whole)
    end
    reduced = as_array(record(a -> reduce(op, a; dims), v))
    return init === nothing ? reduced : op.(init, reduced)
end

function Base.accumulate(op, x::TracedRArray; dims = nothing)
    known(op)
    return as_array(record(a -> accumulate(op, a; dims), value(x)))
end

Base.cumsum(x::TracedRArray; kw...) = as_array(record(a -> cumsum(a; kw...), value(x)))
# As in Reactant, the order is traced, and that of numbers by default is <, which does not know NaN.
function Base.sort(x::TracedRArray{T}; dims = 1, rev = false, lt = isless) where {T}
    less = lt === isless ? (<) : lt
    less(TracedRNumber{T}(0), TracedRNumber{T}(0)) isa TracedRNumber{Bool} ||
        cannot_record("a sort by $lt")
    by = (; rev, lt = less)
    return as_array(record(a -> ndims(a) == 1 ? sort(a; by...) : sort(a; dims, by...), value(x)))
end
Base.reshape(x::TracedRArray, shape::Dims) = as_array(record(a -> reshape(a, shape), value(x)))
Base.reverse(x::TracedRArray; dims = :) = as_array(record(a -> reverse(a; dims), value(x)))
Base.circshift(x::TracedRArray, by::Integer) = as_array(record(a -> circshift(a, by), value(x)))
function Base.circshift(x::TracedRArray, by::Tuple{Vararg{Integer}})
    return as_array(record(a -> circshift(a, by), value(x)))
end
Base.repeat(x::TracedRArray, by::Integer...) = as_array(record(a -> repeat(a, by...), value(x)))

for f in (:vcat, :hcat)
    @eval Base.$f(x::TracedRArray, more::TracedRArray...) = as_array(record(
        $f,
        value(x),
        map(value, more)...,
    ))
end

Base.getindex(x::TracedRArray{T, 0}) where {T} = as_number(value(x))
function Base.getindex(x::TracedRArray, index...)
    all(i -> i isa Number, index) && error("Scalar indexing is disallowed.")
    any(i -> i isa AbstractArray && unwrapped_eltype(i) === Bool, index) &&
        cannot_record("an index by a mask, whose result depends on values")
    operands = Value[value(x); Value[value(i) for i in index if !(i isa Colon)]]
    found = record(operands...) do a, given...
        rest = Iterators.Stateful(given)
        at = Any[i isa Colon ? i : popfirst!(rest) for i in index]
        return a[map(i -> i isa Array{<:Any, 0} ? i[] : i, at)...]
    end
    return as_array(found)
end

function Base.setindex!(x::TracedRArray, y, index...)
    any(i -> i isa Traced, index) && cannot_record("a write to a place that depends on values")
    x.mlir_data = record(value(x), value(y)) do a, b
        changed = copy(a)
        view(changed, index...) .= b
        return changed
    end
    return x
end

function Base.similar(::TracedRArray, ::Type{T}, shape::Dims) where {T}
    return as_array(constant(fill(unit(unwrapped_eltype(T)), shape)))
end
