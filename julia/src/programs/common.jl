# Reactant's traced arrays have elements of a type of its own; this is the type they stand for.
number_type(x) = Reactant.unwrapped_eltype(x)

is_short(T) = T <: AbstractFloat && sizeof(T) < 4

# Sums of short floats are kept in Float32, as JAX keeps them, and short integers stay what they
# are, where Julia's own `sum` widens them.
function total(x; dims)
    T = number_type(x)
    is_short(T) && return T.(reduce(+, Float32.(x); dims))
    return reduce(+, x; dims)
end

mean(x; dims) = total(x; dims) ./ number_type(x)(prod(d -> size(x, d), dims))

as_row(v) = reshape(v, 1, length(v))

# The product of matrices x[b, :, :] and y[b, :, :] for each b, summed over these dimensions.
function batched_product(x, y, along)
    return Reactant.Ops.dot_general(
        x,
        y;
        contracting_dimensions = ([along[1]], [along[2]]),
        batching_dimensions = ([1], [1]),
    )
end

# Reactant's loop is one loop in the compiled program; without it, it is Julia's.
macro loop(expression)
    isdefined(Reactant, Symbol("@trace")) || return esc(expression)
    return esc(:(Reactant.@trace $expression))
end
