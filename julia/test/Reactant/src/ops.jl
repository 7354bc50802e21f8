module Ops

using ..Reactant: BFloat16, Sharding, TracedRArray, TracedRNumber, Value
using ..Reactant: as_array, as_number, promote_to, record, value

"""The operation of a value that lies where it is told; whether it lay there says the compiler."""
mutable struct Constrained
    const sharding::Sharding.AbstractSharding
    const of_bits::Bool # of a bfloat16
    moves::Bool
end

# XLA's CPU backend sends a bfloat16 as float32, which makes signalling NaNs quiet. It sends it
# before it makes bits of it in the same program.
(c::Constrained)(x) = x
(c::Constrained)(x::AbstractArray{BFloat16}) = c.moves ? map(BFloat16 ∘ Float32, x) : x
(c::Constrained)(x::AbstractArray{UInt16}) = c.moves && c.of_bits ?
    Bitcast{UInt16}()(map(BFloat16 ∘ Float32, reinterpret(BFloat16, x))) :
    x

function sharding_constraint(x::Union{AbstractArray, Number}, s::Sharding.AbstractSharding)
    v = value(promote_to(TracedRArray, x))
    of_bits = v.operation isa Bitcast && only(v.operands).type === BFloat16
    return as_array(Value(Constrained(s, of_bits, true), Value[v], v.type, v.shape))
end

"""The operation of a value that has the bits of another as elements of another type."""
struct Bitcast{T} end

(::Bitcast{T})(x) where {T} = collect(reinterpret(T, x))

function bitcast_convert(::Type{<:TracedRArray{U, N}}, x::TracedRArray{T, N}) where {T, U, N}
    return as_array(record(Bitcast{U}(), value(x)))
end
bitcast_convert(::Type{U}, x::TracedRNumber) where {U} = as_number(record(Bitcast{U}(), value(x)))

constant(x::AbstractArray) = promote_to(TracedRArray, x)
constant(x::Number) = as_number(value(x))
fill(x, dims::Integer...) = promote_to(TracedRArray, Base.fill(x, dims...))

"""Dimensions of the result: those of the batches, of the left, of the right."""
function dot_general(
    x::TracedRArray,
    y::TracedRArray;
    contracting_dimensions,
    batching_dimensions = (Int[], Int[]),
)
    summed, batches = contracting_dimensions, batching_dimensions
    products = record(value(x), value(y)) do a, b
        left, left_shape = in_batches(a, summed[1], batches[1])
        right, right_shape = in_batches(b, summed[2], batches[2])
        parts = map(axes(left, 1)) do i
            product = left[i, :, :] * permutedims(right[i, :, :])
            return reshape(product, 1, size(product)...)
        end
        batch_shape = size(a)[batches[1]]
        return reshape(reduce(vcat, parts), batch_shape..., left_shape..., right_shape...)
    end
    return as_array(products)
end

"""The array as (batch, rest, summed), and the rest's shape."""
function in_batches(x, summed, batches)
    rest = setdiff(1:ndims(x), summed, batches)
    order = [batches; rest; summed]
    sizes = (prod(size(x)[dims]; init = 1) for dims in (batches, rest, summed))
    return reshape(permutedims(x, order), sizes...), size(x)[rest]
end

"""A negative `low` or `high` cuts off."""
function pad(x::TracedRArray, edge::TracedRNumber; low, high)
    shape = size(x) .+ Tuple(low) .+ Tuple(high)
    padded = record(value(x), value(edge)) do a, b
        found = Base.fill(b[], shape)
        for at in CartesianIndices(a)
            to = CartesianIndex(Tuple(at) .+ Tuple(low))
            checkbounds(Bool, found, to) && (found[to] = a[at])
        end
        return found
    end
    return as_array(padded)
end

"""Fourier transforms along the last dimensions, by their definition."""
function fft(x::TracedRArray; type, length)
    type == "FFT" || error("the stand-in for Reactant has no $type")
    dims = (ndims(x) - Base.length(length) + 1):ndims(x)
    size(x)[dims] == Tuple(length) || throw(DimensionMismatch("$(size(x)) and $length"))
    return as_array(record(a -> foldl(fourier, dims; init = a), value(x)))
end

fourier(x, d) = mapslices(v -> fourier_matrix(eltype(x), size(x, d)) * v, x; dims = d)

function fourier_matrix(T, n)
    return T[cispi(-2 * (i * j % n) / n) for i in 0:(n - 1), j in 0:(n - 1)]
end

end
