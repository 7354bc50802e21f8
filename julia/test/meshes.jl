using PyReactant: blocks

"""What XLA's form of a sharding gives, by device."""
function by_xla(s, @nospecialize(shape))
    hlo = Reactant.Sharding.to_hlo(to_reactant(s), length(shape))
    slices, uneven = Reactant.XLA.sharding_to_concrete_array_indices(hlo, shape, 0:7)
    @assert !uneven
    return Dict{Int, Vector{UnitRange{Int}}}(
        id => [r .- 1 for r in slice]
        for (id, slice) in zip(sort(s.mesh.ids), slices)
    )
end

@testset "placement, $sizes, order $k" for (sizes, names) in MESHES, k in (0, 1, 2)
    ids = k == 0 ? IDS : shuffled(IDS, k)
    m = mesh(ids, sizes, names)
    for n in 0:3, spec in specs(names, n)
        shape = Tuple(8 * (1:n))
        s = PyReactant.padded(sharding(m, spec), n)
        expected = plain_rule(ids, sizes, names, spec, shape)
        @test by_device(blocks(s, shape)) == expected
        @test by_xla(s, shape) == expected
    end
end

@testset "a mesh's arguments are left as they are" begin
    ids = [IDS[i] for i in (3, 1, 2, 4)]
    before = copy(ids)
    mesh(Tuple(ids), (2, 2), ("x", "y"))
    @test ids == before
    m = mesh((IDS[2],), (1, 1), ("x", "y")) # one device: no mesh of Reactant's
    @test to_reactant(sharding(m, ("x", nothing))) isa Reactant.Sharding.NoSharding
end

@testset "bad meshes and specs" begin
    m = mesh(IDS, (2, 4), ("x", "y"))
    list = PythonCall.pylist(["x", "y"])
    for (f, text) in (
            (() -> mesh(IDS, (2, 3), ("x", "y")), "one device per place, got sizes (2, 3)"),
            (() -> mesh(IDS, (8,), ("x", "y")), "one name per axis"),
            (() -> mesh((0, 0), (2,), ("x",)), "each device once, got (0, 0)"),
            (() -> mesh(IDS, (2, 4), ("x", "x")), "each axis name once"),
            (() -> sharding(m, ("z",)), "names axis 'z', but the mesh has axes"),
            (() -> sharding(m, PythonCall.pyconvert(Any, list)), "got a PyList"),
            (() -> sharding(m, (PythonCall.pyconvert(Any, list),)), "write tuples, not lists"),
            (() -> sharding(m, (["x"],)), "write tuples, not lists"),
            (() -> sharding(m, (:x,)), "got a Symbol: x"),
            (() -> sharding(m, ("x", ("y", "x"))), "uses axis 'x' twice"),
            (
                () -> blocks(sharding(m, ("y",)), (6,)),
                "dimension 0 of shape (6,) is not divisible by 4",
            ),
            (() -> blocks(sharding(m, ("x", nothing)), (8,)), "has 2 entries, the array 1 dim"),
        )
        kind, message = wrong(f)
        @test kind == "ShardingError"
        @test occursin(text, message)
    end
end
