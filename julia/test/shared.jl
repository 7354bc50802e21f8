# What several files use: meshes and specs, functions for programs, an array on a mesh whose devices
# are not in order.
using PyReactant: compile, lower, mesh, settle, sharding, to_reactant

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
    sorted(x) = sort(x; dims = 2)
    minus(x, y) = x .- y
    swapped(x, y) = (t = copy(x); x .= y; y .= t; x .+ 2 .* y)
    nothing_at_all(x) = (nothing, ())
    tree(x) = (w = x, more = (Any[sum(x), nothing], [x, x .+ 1]), empty = (;))
    kinds(t) = (t.list isa Vector{<:AbstractMatrix} ? 1 : 0) +
        (t.numbers isa Vector{Any} ? 10 : 0) +
        (t.mixed isa Tuple ? 100 : 0) +
        (keys(t) == (:list, :numbers, :mixed, :rate) ? 1000 : 0)
    by_rate(t, x) = t.rate .* (x .+ t.list[2] .- t.numbers[1] .- t.mixed[2].deep)
    struct Unfit end
    unfit(x) = (x, Unfit())
    const CALLS = Ref(0)
    changing(x) = (CALLS[] += 1; CALLS[] % 2 == 0 ? x : (x, x))
    throws(x) = error("no luck today")
    throws_badly(x) = error("\e[31mno\0 luck \xff")
    const RUNS, PLACES, BY = Ref(0), Ref(0), Ref(2)
    counted(x) = (RUNS[] += 1; at_each_place.(x))
    at_each_place(a) = (PLACES[] += 1; a * BY[])
    branches(x) = sum(x) > 0 ? x : 2 .* x
    by_mask(x) = x[x .> 3]
    no_rows(x) = x[1:0, :]
    of_abstract_type(x) = Real[1, 2.5]
    not_a_function = 3
end
@eval Bodies sorted_by_us(x) = $(PyReactant.Programs.sort)(x)
@eval PyReactant const TestBodies = $Bodies

const M = mesh(shuffled(IDS, 2), (2, 4), ("x", "y"))
const S = sharding(M, ("x", "y"))
const X = place(reshape(Float64.(1:64), 8, 8), S)

"""An array as `lower` takes it."""
described(x) = (PyReactant.dtype_of(x), PyReactant.shape_of(x), x.sharding)

"""Lower a function for arguments like these; each is one array unless a structure is given."""
function lowered(
    name,
    args,
    out = ();
    structure = ("tuple", (0:(length(args) - 1))...),
    precision = "",
    static = (),
)
    path = "PyReactant.TestBodies.$name"
    return lower("p", path, "", structure, map(described, args), out, precision, static)
end

"""Compile it; its results have these shardings if some are given."""
function body(name, args, out = (); options...)
    c = compile(lowered(name, args, out; options...))
    isempty(out) || settle(c, ntuple(i -> out[min(i, end)], length(c.outputs)))
    return c
end

"""The one result of a program."""
result(c, args...) = only(c(args...))
