using PyReactant: from_blocks, gather, read_shard, shards

@testset "$spec" for spec in (
        ("x", "y"),
        ("y", "x"),
        (nothing, "y"),
        (("y", "x"),),
        (("x", "y"), nothing),
        (),
        ("x",),
    )
    x = reshape(Float32.(1:512), 16, 32)
    held = place(x, sharding(M, spec))
    @test whole(held) == x
    @test [id for (id, _, _) in shards(held)] == sort([IDS...])
    whole_spec = (spec..., nothing, nothing)[1:2]
    @test by_device(shards(held)) == plain_rule(M.ids, (2, 4), ("x", "y"), whole_spec, (16, 32))
    out = np.zeros((16, 32), "float32")
    gather(held, as_numpy(out))
    @test as_numpy(out) == x
end

@testset "gather keeps all bits of short floats" begin
    bits = reshape(0x7f80 .+ UInt16.(0:63), 8, 8) # infinity, and then only NaNs
    held = place(collect(reinterpret(Reactant.BFloat16, bits)), sharding(M, ("x", "y")))
    out = np.zeros((8, 8), "uint16")
    gather(held, as_numpy(out))
    @test as_numpy(out) == bits
end

@testset "no dimensions, no elements, one device" begin
    scalar = place(fill(2.5), sharding(M, ()))
    @test whole(scalar) == fill(2.5)
    for shape in ((0, 8), (8, 0), (0,))
        s = PyReactant.padded(sharding(M, ("x",)), length(shape))
        found = PyReactant.blocks(s, shape)
        data = Tuple(zeros(Int8, Tuple(b .- a)) for (_, a, b) in found)
        held = from_blocks("int8", shape, s, Tuple((id,) for (id, _, _) in found), data...)
        @test PyReactant.shape_of(held) == shape
        @test shards(held) == [(id, Tuple(a), Tuple(b)) for (id, a, b) in found]
        read_shard(held, 0, zeros(Int8, Tuple(found[1][3] .- found[1][2])))
    end
    alone = mesh((IDS[4],), (1,), ("x",))
    held = place([1.0 2.0; 3.0 4.0], sharding(alone, ("x",)))
    @test shards(held) == [(IDS[4], (0, 0), (2, 2))]
    @test Reactant.XLA.device_ordinal(Reactant.XLA.device(held.array)) == IDS[4]
    @test whole(held) == [1.0 2.0; 3.0 4.0]
end

@testset "what is read is a copy, in any order of memory" begin
    x = reshape(collect(1:64), 8, 8)
    held = place(x, sharding(M, ("x", "y")))
    (_, from, to) = shards(held)[3]
    for order in ("C", "F")
        out = np.zeros(to .- from, "int64"; order)
        read_shard(held, 2, as_numpy(out))
        @test as_numpy(out) == x[(from[1] + 1):to[1], (from[2] + 1):to[2]]
        out.fill(0)
    end
    x .= 0
    @test sum(whole(held)) == sum(1:64)
end

@testset "Julia keeps no NumPy array: its collector would free the memory late" begin
    held = place(reshape(collect(1:64), 8, 8), sharding(M, ("x", "y")))
    references(x) = PythonCall.pyconvert(Int, pyimport("sys").getrefcount(x))
    room, all_of_it = np.zeros((4, 2), "int64"), np.zeros((8, 8), "int64")
    before = references(room)
    read_shard(held, 0, as_numpy(room))
    @test references(room) == before
    gather(held, as_numpy(all_of_it))
    @test references(all_of_it) == before
    refused = wrong(() -> read_shard(held, 0, as_numpy(all_of_it)))
    @test first(refused) == "InvalidArgumentError"
    @test references(all_of_it) == before
    given = ntuple(_ -> as_numpy(room), 8)
    ids = Tuple((id,) for (id, _, _) in PyReactant.blocks(held.sharding, (8, 8)))
    from_blocks("int64", (8, 8), held.sharding, ids, given...)
    @test references(room) == before
end

@testset "a block that several devices hold is given once" begin
    s = sharding(M, ("y",))
    x = collect(1.0:8.0)
    by_block = Dict{Any, Vector{Int}}()
    for (id, from, to) in PyReactant.blocks(s, (8,))
        push!(get!(by_block, (from[1], to[1]), Int[]), id)
    end
    keys_ = reverse(collect(keys(by_block)))
    data = Tuple(x[(a + 1):b] for (a, b) in keys_)
    holders = Tuple(Tuple(by_block[k]) for k in keys_)
    for _ in 1:2
        # twice: Reactant changes the mapping that it is given
        @test whole(from_blocks("float64", (8,), s, holders, data...)) == x
    end
end

@testset "wrong blocks" begin
    s = sharding(M, ("x", "y"))
    ids = Tuple((id,) for id in sort(M.ids))
    block = zeros(4, 2)
    for (f, text) in (
            (
                () -> from_blocks("float64", (8, 8), s, ids[1:1], block),
                "each of this process's devices",
            ),
            (
                () -> from_blocks("float64", (8, 8), s, ids, ntuple(_ -> zeros(4, 4), 8)...),
                "needs a block of shape (4, 2), got (4, 4)",
            ),
            (
                () -> from_blocks("float32", (8, 8), s, ids, ntuple(_ -> block, 8)...),
                "a block of float32",
            ),
        )
        kind, message = wrong(f)
        @test kind == "InvalidArgumentError"
        @test occursin(text, message)
    end
    @test first(wrong(() -> place(zeros(6, 6), s))) == "ShardingError"
end

@testset "shown without a look at the elements" begin
    held = place(zeros(Reactant.BFloat16, 8, 8), sharding(M, ("x", "y")))
    for text in (repr(held), repr("text/plain", held))
        @test occursin("Held(bfloat16[8, 8]", text)
    end
end
