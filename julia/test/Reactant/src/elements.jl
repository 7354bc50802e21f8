for T in (:F8E5M2, :F8E4M3FN, :F8E4M3B11FNUZ, :F8E5M2FNUZ, :F8E4M3FNUZ)
    @eval primitive type $T <: AbstractFloat 8 end
end

# The real one takes BFloat16 from BFloat16s.jl. Here it is computed in Float32 and rounded.
primitive type BFloat16 <: AbstractFloat 16 end

function BFloat16(x::Float32)
    bits = reinterpret(UInt32, x)
    isnan(x) && return reinterpret(BFloat16, 0x7fc0)
    even = (bits >> 16) & 0x01
    return reinterpret(BFloat16, ((bits + 0x7fff + even) >> 16) % UInt16)
end
BFloat16(x::BFloat16) = x
BFloat16(x::Real) = BFloat16(Float32(x))
Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)
(::Type{T})(x::BFloat16) where {T <: Union{Float16, Float64, Integer}} = T(Float32(x))
Base.promote_rule(::Type{BFloat16}, ::Type{T}) where {T <: Union{Float32, Float64}} = T
Base.promote_rule(::Type{BFloat16}, ::Type{<:Integer}) = BFloat16
for op in (:+, :-, :*, :/, :^)
    @eval Base.$op(a::BFloat16, b::BFloat16) = BFloat16($op(Float32(a), Float32(b)))
end
for op in (:-, :abs, :sqrt, :exp, :log, :sin, :cos, :tanh)
    @eval Base.$op(a::BFloat16) = BFloat16($op(Float32(a)))
end
for op in (:(==), :<, :<=, :isless)
    @eval Base.$op(a::BFloat16, b::BFloat16) = $op(Float32(a), Float32(b))
end
# XLA sums products of short floats in Float32.
for T in (BFloat16, Float16)
    @eval Base.:*(a::AbstractMatrix{$T}, b::AbstractVecOrMat{$T}) = $T.(
        Float32.(collect(a)) * Float32.(collect(b)),
    )
end
Base.isnan(a::BFloat16) = isnan(Float32(a))
Base.show(io::IO, a::BFloat16) = print(io, "BFloat16(", Float32(a), ")")

# Two of the 8-bit kinds are multiplied: read by table, written as the nearest value there is.
value_of(::Type{F8E5M2}, bits::UInt8) = Float32(reinterpret(Float16, UInt16(bits) << 8))
function value_of(::Type{F8E4M3FN}, bits::UInt8)
    exponent, fraction = Int(bits >> 3) & 0x0f, Int(bits) & 0x07
    exponent == 0x0f && fraction == 0x07 && return NaN32
    size = exponent == 0 ?
        ldexp(Float32(fraction), -9) :
        ldexp(Float32(8 + fraction), exponent - 10)
    return bits & 0x80 == 0 ? size : -size
end
for T in (:F8E5M2, :F8E4M3FN)
    @eval Base.Float32(x::$T) = value_of($T, reinterpret(UInt8, x))
    @eval function $T(x::Float32)
        isnan(x) && return reinterpret($T, 0x7f)
        far(bits) = (d = abs(value_of($T, bits) - x); isnan(d) ? Inf32 : d)
        # Of two that are as near the even one.
        return reinterpret($T, argmin(bits -> (far(bits), bits & 0x01), 0x00:0xff))
    end
    @eval Base.:*(a::AbstractMatrix{$T}, b::AbstractVecOrMat{$T}) = $T.(
        Float32.(collect(a)) * Float32.(collect(b)),
    )
end

const ReactantFloat8 = Union{F8E5M2, F8E4M3FN, F8E4M3B11FNUZ, F8E5M2FNUZ, F8E4M3FNUZ}
const ReactantPrimitive = Union{
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    BFloat16,
    ComplexF32,
    ComplexF64,
    ReactantFloat8,
}

# Here Julia calls all functions, and nothing interprets them.
macro skip_rewrite_func(f)
    return nothing
end
