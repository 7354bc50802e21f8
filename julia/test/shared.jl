# What several files use: meshes and specs, functions for programs, an array on a mesh whose devices
# are not in order.
using PyReactant: compile, mesh, sharding, to_reactant

const MESHES = (
    ((8,), ("x",)),
    ((2, 4), ("x", "y")),
    ((4, 2), ("a", "b")),
    ((2, 2, 2), ("x", "y", "z")),
    ((1, 8), ("x", "y")),
    ((2, 1, 4), ("x", "y", "z")),
)

"""Every spec of `n` dimensions over these axes, with two axes in one dimension in either order."""
function specs(names, n)
    pairs_ = Any[(a, b) for a in names for b in names if a != b]
    entries = Any[nothing, names..., (n < 3 ? pairs_ : pairs_[1:0])...]
    found = Any[()]
    for _ in 1:n
        found = Any[(spec..., entry) for spec in found for entry in entries]
    end
    return filter(
        spec -> allunique(reduce(vcat, map(named, collect(spec)); init = String[])),
        found,
    )
end

module Bodies
    double(x) = 2 .* x
    product(x, y) = x * y'
    pair(x, y) = (x .+ y, sum(x))
    scaled(x; by, times = 1) = x .* (by * times)
    twice_the_same(x) = (x, x)
    back(x) = x
    writes(x) = (x .= 0; x)
    constant(x) = [1.0 2.0; 3.0 4.0]
    number(x) = 7
    by_scalar(x, a) = a * x
    text_of(x) = "text"
    turned(x) = x'
    throws(x) = error("no luck today")
    not_a_function = 3
end
@eval PyReactant const TestBodies = $Bodies

const M = mesh(shuffled(IDS, 2), (2, 4), ("x", "y"))
const S = sharding(M, ("x", "y"))
const X = place(reshape(Float64.(1:64), 8, 8), S)

body(name, args, out = nothing; precision = "", static = ()) = compile(
    "PyReactant.TestBodies.$name",
    "",
    args,
    out,
    precision,
    static,
)
