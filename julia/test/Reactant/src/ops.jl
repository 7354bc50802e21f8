module Ops

using ..Reactant: BFloat16, Sharding, TracedRArray, TracedRNumber, Value
using ..Reactant: as_array, as_number, promote_to, record, value

"""The operation of a value that lies where it is told; whether it lay there says the compiler."""
mutable struct Constrained
    const sharding::Sharding.AbstractSharding
    moves::Bool
end

(::Constrained)(x) = x
# XLA's CPU backend sends it as float32, which makes signalling NaNs quiet.
(c::Constrained)(x::AbstractArray{BFloat16}) = c.moves ? map(BFloat16 ∘ Float32, x) : x

function sharding_constraint(x::Union{AbstractArray, Number}, s::Sharding.AbstractSharding)
    v = value(promote_to(TracedRArray, x))
    return as_array(Value(Constrained(s, true), Value[v], v.type, v.shape))
end

function bitcast_convert(::Type{<:TracedRArray{U, N}}, x::TracedRArray{T, N}) where {T, U, N}
    return as_array(record(a -> collect(reinterpret(U, a)), value(x)))
end
function bitcast_convert(::Type{U}, x::TracedRNumber) where {U}
    return as_number(record(a -> collect(reinterpret(U, a)), value(x)))
end

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
