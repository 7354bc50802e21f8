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

"""The transposed."""
turned_over(x) = permutedims(x, (2, 1))

"""Three dimensions in another order."""
turned(x) = permutedims(x, (3, 1, 2))

"""Python's outputs may be one in a tuple."""
one_in_a_tuple(x) = (x .+ one(eltype(x)),)

"""Python gets the keys in this order."""
as_dict(x) = (w=x .+ one(eltype(x)), b=dropdims(sum(x; dims=1); dims=1))

"""A vector of numbers is an array; of type Any it is a list."""
nested(x) = (pair=(x, Any[sum(x), maximum(x)]), none=Base.nothing)

"""A dictionary is a NamedTuple, a list a Vector, a tuple a Tuple."""
total(tree) = tree.w .+ tree.layers[1] .+ tree.layers[2] .+ permutedims(tree.bias[1])

"""A dataclass and a namedtuple are NamedTuples."""
of_layer(layer) = layer.w .+ layer.b.first .+ layer.b[2]

nothing(x) = Base.nothing
empty(x) = ()
in_a_list(x) = [x]
plus(x, y) = x .+ y
minus(x, y) = x .- y

const RUNS = Ref(0)

"""How often this was traced, added."""
function counted(x)
    RUNS[] += 1
    return x .+ RUNS[]
end

"""What was put into each container, by its Julia type: 1, 2, 4, 8, 16, 32."""
function kinds(tree)
    found = tree.dict isa NamedTuple{(:a, :b)} ? 1 : 0
    found += tree.one_type isa Vector{<:AbstractMatrix} ? 2 : 0
    found += tree.mixed isa Tuple{AbstractMatrix,AbstractVector} ? 4 : 0
    found += tree.numbers isa Vector{Any} && tree.numbers[1] isa Number ? 8 : 0
    found += tree.none === Base.nothing ? 16 : 0
    found += tree.layer isa NamedTuple{(:w, :rate)} && tree.layer.rate === 3 ? 32 : 0
    return found
end

"""A static field is no array."""
same(tree) = merge(tree, (layer=(w=tree.layer.w, rate=tree.layer.rate),))

"""Programs are pure; this one is not."""
function writes!(x)
    x .= 2 .* x
    return sum(x; dims=1)
end

writes_to_the_second!(tree, x) = writes!(x[1])

"""Steps that write one argument to another (by a broadcast, both ways, by copyto!), or add them."""
function moved(arguments...; steps)
    held = Any[arguments...]
    for (kind, i, j) in steps
        x, y = held[i + 1], held[j + 1]
        if kind == 0
            x .= y
        elseif kind == 1
            before = copy(x)
            x .= y
            y .= before
        elseif kind == 2
            copyto!(x, y)
        else
            held[i + 1] = x .+ y
        end
    end
    return Tuple(held)
end

throws(x) = throw(DomainError(size(x), "the model wants another shape"))
endless(x) = endless(x .+ 1) .+ 1
throws_badly(x) = error("\e[31mred\0")
no_rows(x) = similar(x, 0, size(x, 2)) # Reactant's own indexing takes no empty range
real(x) = Real[1, 2.5]
gives_text(x) = "a text"
struct Model end
gives_struct(x) = (x, Model())
gives_pair(x) = (x, "a text")
const number = 7

module Deep
scale!(x) = 2 .* x
end

end
