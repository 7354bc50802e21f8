"""
Julia bodies of the matrix product that are wrong, each in its own way, and a right one.
"""
module WrongBodies

right(x, y) = x * y

"""Julia's order of dimensions taken for Python's."""
transposed(x, y) = permutedims(x * y)

"""One of two equal parts of the sum over the inner dimension."""
half_a_sum(x, y) = x * y ./ 2

"""Float32 in name."""
short(x, y) = Float32.(Float16.(x * y))

"""Another shape than the JAX body gives."""
a_row_less(x, y) = (x * y)[1:(end ÷ 2), :]

throws(x, y) = throw(DomainError(size(x), "the model wants another shape"))

end
