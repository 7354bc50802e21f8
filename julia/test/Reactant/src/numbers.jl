# Operations on numbers. Real Reactant fails where a condition is a traced number, and so does this:
# it is no Bool.

"""A function of numbers, computed at each place of arrays."""
struct Elementwise
    f::Any
    type::DataType
    shape::Dims
end

function (e::Elementwise)(arrays...)
    found = broadcast(e.f, map(x -> ndims(x) == 0 ? x[] : vec(x), arrays)...)
    return isempty(e.shape) ? fill(found) : reshape(collect(e.type, found), e.shape)
end

function elementwise(@nospecialize(f), args::Number...)
    operands = Value[value(x) for x in args]
    shapes = unique(v.shape for v in operands if !isempty(v.shape))
    length(shapes) < 2 || cannot_record("$f of numbers of several arrays")
    T = typeof(f(map(one_number, operands)...))
    shape = isempty(shapes) ? () : only(shapes)
    return as_number(Value(Elementwise(f, T, shape), operands, T, shape))
end

one_number(v::Value) = v.operation isa Constant && isempty(v.shape) ?
    v.operation.data[] :
    unit(v.type)

const OF_ONE = """
+ - ! ~ abs abs2 acos acosh angle asin asinh atan atanh cbrt ceil conj cos cosh exp exp2 expm1 float
floor imag inv isfinite isinf isnan log log10 log1p log2 real round sign sin sinh sqrt tan tanh
trunc
"""
const OF_TWO = "+ - * / ^ & | xor < <= == atan cld div fld max min mod rem"

for f in Symbol.(split(OF_ONE))
    @eval Base.$f(x::TracedRNumber) = elementwise($f, x)
end

for f in Symbol.(split(OF_TWO))
    @eval begin
        Base.$f(x::TracedRNumber, y::TracedRNumber) = elementwise($f, x, y)
        Base.$f(x::TracedRNumber, y::Number) = elementwise($f, x, y)
        Base.$f(x::Number, y::TracedRNumber) = elementwise($f, x, y)
    end
end
Base.:^(x::TracedRNumber, y::Integer) = elementwise(^, x, y) # Julia has one for all numbers

Base.ifelse(x::TracedRNumber{Bool}, y::Number, z::Number) = elementwise(ifelse_of_one_type, x, y, z)
ifelse_of_one_type(x, y, z) = ifelse(x, promote(y, z)...)

for T in Base.uniontypes(ReactantPrimitive)
    @eval (::Type{$T})(x::TracedRNumber) = elementwise($T, x)
    @eval (::Type{$T})(x::TracedRNumber{$T}) = x
end

TracedRNumber{T}(x::Number) where {T} = as_number(value(T(x)))
TracedRNumber{T}(x::TracedRNumber) where {T} = elementwise(T, x)
TracedRNumber{T}(x::TracedRNumber{T}) where {T} = x

function Base.promote_rule(::Type{TracedRNumber{T}}, ::Type{S}) where {T, S <: Number}
    return TracedRNumber{promote_type(T, unwrapped_eltype(S))}
end
