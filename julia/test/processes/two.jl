# One of two processes with two devices each.
include("common.jl")
using PyReactant: compile, gather, lower, mesh, read_shard, settle, sharding, shards

const INDEX, PORT = parse.(Int, ARGS)

late = () -> PyReactant.initialize("127.0.0.1:$PORT", 2, INDEX, (), true, "", 30, 30)
late()
@test first(wrong(late)) == "StateError"
PyReactant.start_platform("cpu", 2)
rows = PyReactant.devices()
@test [row[1] for row in rows] == [0, 1, 2048, 2049]
@test [row[5] for row in rows] ==
    (INDEX == 0 ? [true, true, false, false] : [false, false, true, true])

# Process 1's devices first, so that ranks and ids differ.
const M = mesh((2049, 0, 2048, 1), (2, 2), ("x", "y"))
const S = sharding(M, ("x", "y"))
const X = reshape(collect(1.0:16.0), 4, 4)

function place(x, s)
    s = PyReactant.padded(s, ndims(x))
    mine = filter(b -> PyReactant.is_local(b[1]), PyReactant.blocks(s, size(x)))
    data = Tuple(x[(UnitRange(i + 1, j) for (i, j) in zip(a, b))...] for (_, a, b) in mine)
    return PyReactant.from_blocks(
        "float64",
        size(x),
        s,
        Tuple((id,) for (id, _, _) in mine),
        data...,
    )
end

held = place(X, S)
@test [id for (id, _, _) in shards(held)] == (INDEX == 0 ? [0, 1] : [2048, 2049])
for (i, (id, from, to)) in enumerate(shards(held))
    block = zeros(2, 2)
    read_shard(held, i - 1, block)
    @test block == X[(from[1] + 1):to[1], (from[2] + 1):to[2]]
end

# 2: on one process alone each of these would wait for the other for ever.
for naive in (
        () -> Array(held.array),
        () -> repr(held.array),
        () -> repr("text/plain", held.array),
        () -> held.array == X,
        () -> isapprox(held.array, X),
        () -> Reactant.XLA.to_host(held.array.data, zeros(4, 4), held.array.sharding),
    )
    @test occursin("HiddenCollective", last(wrong(naive)))
end
@test occursin("Held(float64[4, 4]", repr(held))

out = zeros(4, 4)
gather(held, out)
@test out == X

row = ("float64", (4, 4), S)
product = compile(lower("p", "*", "", ("tuple", 0, 1), (row, row), (S,), "highest", ()))
settle(product, (S,))
square = only(product(held, held))
gather(square, out)
@test out == X * X
fill!(out, 0)
gather(only(product(square, held)), out)
@test out == X * X * X

# A program that the other process does not run is an error here, and a hang with the real one.
println("all is well")
