"""
Julia twins of the bodies in bodies.py, and functions that go wrong.

Axis i of Python is axis i + 1 here, and arrays of no dimensions are numbers.
"""
module Bodies

"""x + x'."""
add_transposed(x) = x .+ permutedims(x, (2, 1))

"""Row sums and the full sum: two outputs, one of them a number."""
sums(x) = (dropdims(sum(x; dims=2); dims=2), sum(x))

"""A number and a static argument."""
scaled(x, factor; power) = factor .* x .^ power

"""A static argument of which 0.0 and -0.0 are two."""
over(x; number) = x ./ number

"""No argument at all."""
filled() = collect(Float32, 0:7)

"""Three dimensions in another order."""
turned(x) = permutedims(x, (3, 1, 2))

"""Python's outputs may be one in a tuple."""
one_in_a_tuple(x) = (x .+ one(eltype(x)),)

"""Programs are pure; this one is not."""
function writes!(x)
    x .= 2 .* x
    return sum(x; dims=1)
end

throws(x) = throw(DomainError(size(x), "the model wants another shape"))
gives_text(x) = "a text"
gives_nothing(x) = nothing
gives_pair(x) = (x, "a text")
const number = 7

module Deep
scale!(x) = 2 .* x
end

end
