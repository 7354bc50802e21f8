module Ops

using ..Reactant: Sharding

"""What `sharding_constraint` said while a function is traced."""
const CONSTRAINTS = Ref(IdDict{Any, Any}())

function sharding_constraint(x::Union{AbstractArray, Number}, s::Sharding.AbstractSharding)
    y = x isa Number ? fill(x) : x
    CONSTRAINTS[][y] = s
    return y
end

constant(x::AbstractArray) = collect(x)
constant(x::Number) = x
fill(x, dims::Integer...) = Base.fill(x, dims...)

end
