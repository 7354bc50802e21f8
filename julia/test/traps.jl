# Each trap of Reactant's: a caller who does the obvious thing is bitten, PyReactant is not.
# Those that need other processes or another start are in processes.jl.
using Reactant: ConcreteRArray, ConcreteIFRTArray, Sharding, XLA, to_rarray
using Reactant.Sharding: Mesh, NamedSharding

"""Device ids as NumPy has them in C order, as a Julia matrix with the same indices."""
c_order(ids, rows, columns) = permutedims(reshape(collect(ids), columns, rows))

shard_of(array, id) = only(data for (device, data) in array.data.buffer.parts if device.id == id)

@testset "1: a mesh from an array of ids is another mesh" begin
    ids = shuffled(IDS, 3)
    x = reshape(Float32.(1:64), 8, 8)
    expected = plain_rule(ids, (2, 4), ("x", "y"), ("x", "y"), (8, 8))
    right(array) = all(
        shard_of(array, id) == x[(r .+ 1 for r in ranges)...]
        for (id, ranges) in expected
    )

    matrix = c_order(ids, 2, 4)
    naive = to_rarray(x; sharding = NamedSharding(Mesh(matrix, (:x, :y)), (:x, :y)))
    @test !right(naive)
    @test matrix != c_order(ids, 2, 4) # and the caller's matrix is sorted now

    held = place(x, sharding(mesh(ids, (2, 4), ("x", "y")), ("x", "y")))
    @test right(held.array)
end

@testset "2: reading" begin
    # One process can convert; where there are several see processes.jl. What is read locally is
    # what the devices here hold, whatever Reactant lists first.
    x = reshape(collect(1.0:16.0), 4, 4)
    held = place(x, sharding(M, ("x", "y")))
    first_part = zeros(2, 1)
    XLA.to_host(held.array.data, first_part, Sharding.NoSharding())
    @test length(first_part) < length(x) # that is all that the fast call gives
    @test whole(held) == x
end

@testset "2b: slices are listed in another order for results than for arguments" begin
    s = NamedSharding(mesh(shuffled(IDS, 3), (2, 4), ("x", "y")).reactant, (:x, :y))
    x = reshape(Float32.(1:64), 8, 8)
    by_slices(info) = Dict(zip(s.mesh.device_ids, info.device_to_array_slices))
    naive = to_rarray(x; sharding = s)
    @test any(shard_of(naive, id) != x[r...] for (id, r) in by_slices(naive.sharding))
    held = place(x, sharding(mesh(shuffled(IDS, 3), (2, 4), ("x", "y")), ("x", "y")))
    @test whole(held) == x
end

@testset "3: a thunk checks types only" begin
    s = NamedSharding(M.reactant, (:x, :y))
    thunk = Reactant.compile(Bodies.double, (to_rarray(ones(8, 8); sharding = s),))
    @test Array(thunk(to_rarray(fill(2.0, 8, 8); sharding = s))) == fill(4.0, 8, 8)
    @test_throws Reactant.MisMatchedThunkTypeError thunk(to_rarray(
        ones(Float32, 8, 8);
        sharding = s,
    ))
    larger = reshape(collect(1.0:256.0), 16, 16)
    naive = thunk(to_rarray(larger; sharding = s))
    @test size(naive) == (8, 8) && Array(naive) != 2 .* larger[1:8, 1:8]
    turned = NamedSharding(M.reactant, (:y, :x))
    x = reshape(collect(1.0:64.0), 8, 8)
    @test Array(thunk(to_rarray(x; sharding = turned))) != 2 .* x

    c = body("double", (X,), (S,))
    for wrong_one in (place(larger, S), place(x, sharding(M, ("y", "x"))))
        @test first(wrong(() -> c(wrong_one))) == "InvalidArgumentError"
    end
end

@testset "4: without all four arguments the cluster is asked" begin
    naive = () -> Reactant.Distributed.initialize(;
        coordinator_address = "localhost:9",
        num_processes = 1,
        process_id = 0,
    )
    @test occursin("cluster environment detector", last(wrong(naive)))
    # PyReactant.initialize gives them all: processes.jl
end

@testset "5: jax and tensorflow stay out" begin
    @test isempty(Reactant.IMPORTED) # as runtests.jl blocked them; processes.jl has the bite
end

@testset "6: the device that was named is not the one" begin
    device = XLA.get_device(XLA.default_backend(), IDS[6])
    naive = ConcreteRArray(ones(2, 2); device)
    @test XLA.device(naive) != device
    held = place(ones(2, 2), sharding(mesh((IDS[6],), (1,), ("x",)), ()))
    @test XLA.device(held.array) == device
    y = result(body("double", (held,), (held.sharding,)), held)
    @test XLA.device(y.array) == device
    @test PyReactant.shards(y) == [(IDS[6], (0, 0), (2, 2))]
end

@testset "lists in a spec" begin
    list = PythonCall.pyconvert(Any, PythonCall.pylist(["x"]))
    @test occursin(
        "Unexpected partition spec",
        last(wrong(() -> NamedSharding(M.reactant, (list, nothing)))),
    )
    @test occursin("write tuples, not lists", last(wrong(() -> sharding(M, (list, nothing)))))
end

@testset "dimensions that do not divide are padded with what was in memory" begin
    s = NamedSharding(M.reactant, (:x, :y))
    naive = to_rarray(ones(6, 6); sharding = s)
    @test size(naive) == (6, 6)
    @test any(x -> any(!=(1.0), x), last.(naive.data.buffer.parts))
    @test Array(naive) isa SubArray
    @test first(wrong(() -> place(ones(6, 6), S))) == "ShardingError"
end

@testset "jit compiles at each call" begin
    x = to_rarray(ones(4))
    before = Reactant.COMPILATIONS[]
    foreach(_ -> Reactant.@jit(Bodies.double(x)), 1:3)
    @test Reactant.COMPILATIONS[] == before + 3
    # ours: programs.jl, "compiled once"
end

@testset "numbers are frozen" begin
    thunk = Reactant.compile(Bodies.by_scalar, (to_rarray(ones(2)), to_rarray(3.0)))
    @test Array(thunk(to_rarray(ones(2)), 5.0)) == [3.0, 3.0]
    a, b = (place(fill(v), sharding(M, ())) for v in (3.0, 5.0))
    c = body("by_scalar", (X, a), (S,))
    @test whole(result(c, X, b)) == 5 .* whole(X)
end

@testset "a result that is an argument loses its sharding" begin
    s = NamedSharding(M.reactant, (:x, :y))
    x = to_rarray(reshape(collect(1.0:64.0), 8, 8); sharding = s)
    thunk = Reactant.compile(Bodies.back, (x,))
    @test isempty(XLA.get_output_shardings(thunk))
    @test !Sharding.is_sharded(thunk(x).sharding)
    y = result(body("back", (X,), (S,)), X)
    @test y.sharding == S
    @test whole(result(body("double", (y,), (S,)), y)) == 2 .* whole(X)
    # Without a constraint, which would be a new array.
    @test whole(result(body("back", (X,)), X)) == whole(X)
end

@testset "the same array twice is traced as one" begin
    a, b = (to_rarray(fill(v, 2)) for v in (5.0, 3.0))
    naive = Reactant.compile(Bodies.minus, (a, a))
    @test Array(naive(a, b)) == zeros(2) # a - a
    @test Array(b) == fill(5.0, 2)       # and b is overwritten
    c = body("minus", (X, X), (S,))
    y = place(ones(8, 8), S)
    @test whole(result(c, X, y)) == whole(X) .- 1
    @test whole(result(c, X, X)) == zeros(8, 8)
    @test whole(y) == ones(8, 8)
end

@testset "a program that swaps its arguments swaps the caller's arrays" begin
    a, b = (to_rarray(fill(v, 2)) for v in (5.0, 3.0))
    naive = Reactant.compile(Bodies.swapped, (a, b))
    @test !any(naive.donated_args_mask) # so nothing says that it writes
    @test Array(naive(a, b)) == fill(13.0, 2)
    @test (Array(a), Array(b)) == (fill(3.0, 2), fill(5.0, 2))
    y = place(ones(8, 8), S)
    c = body("swapped", (X, y), (S,))
    before = whole(X)
    @test whole(result(c, X, y)) == 1 .+ 2 .* before
    @test (whole(X), whole(y)) == (before, ones(8, 8))
end

@testset "a result that all devices have whole is cut" begin
    everywhere = NamedSharding(M.reactant, (nothing, nothing))
    s = NamedSharding(M.reactant, (:x, :y))
    x = to_rarray(reshape(collect(1.0:64.0), 8, 8); sharding = s)
    asked(x) = Reactant.Ops.sharding_constraint(2 .* x, everywhere)
    naive = Reactant.compile(asked, (x,))
    @test !XLA.is_replicated(only(XLA.get_output_shardings(naive)))
    y = result(body("double", (X,), (sharding(M, ()),)), X)
    @test all(row -> row[2:3] == ((0, 0), (8, 8)), PyReactant.shards(y))
end

@testset "8-bit floats have no product" begin
    x = place(fill(reinterpret(Reactant.F8E5M2, 0x3c), 8, 8), S) # ones
    y = whole(result(body("product", (x, x), (S,)), x, x))
    @test eltype(y) == Reactant.F8E5M2
    @test all(==(0x48), reinterpret(UInt8, y)) # eights
    one = reinterpret(Reactant.F8E5M2, 0x3c)
    @test occursin("in compiled programs only", last(wrong(() -> one * one)))
end

@testset "arguments that a program writes to are gone" begin
    x = to_rarray(ones(3))
    Reactant.compile(Bodies.writes, (x,))(x)
    @test occursin("already been donated", last(wrong(() -> x.data)))
    @test occursin("programs are pure", last(wrong(() -> body("writes", (X,), (S,)))))
    @test whole(X)[1] == 1
end

@testset "a sort does not know NaN" begin
    rows = repeat([NaN 2.0 NaN 1.0 -1.0 Inf -Inf 0.5], 8)
    x = place(rows, S)
    sorted(name) = whole(result(body(name, (x,), (S,)), x))
    @test !isequal(sorted("sorted"), sort(rows; dims = 2))
    @test isequal(sorted("sorted_by_us"), sort(rows; dims = 2))
end

@testset "the mapping of blocks to shards is changed by the call" begin
    shards_ = [[i] for i in 1:8]
    data = [zeros(4, 2) for _ in 1:8]
    s = NamedSharding(M.reactant, (:x, :y))
    ConcreteIFRTArray(data, (8, 8), shards_; sharding = s)
    @test shards_ == [[i - 1] for i in 1:8]
    # ours: arrays.jl, "a block that several devices hold", twice
end

@testset "arrays of one device are pointers while they are put together" begin
    s = NamedSharding(M.reactant, (:x, :y))
    Reactant.COLLECTS[] = true
    try
        data = [zeros(4, 2) for _ in 1:8]
        naive = () -> ConcreteIFRTArray(data, (8, 8), [[i] for i in 1:8]; sharding = s)
        @test occursin("was freed while its pointer was in use", last(wrong(naive)))
        held = place(reshape(Float64.(1:64), 8, 8), S)
        @test whole(held) == whole(X)
    finally
        Reactant.COLLECTS[] = false
    end
end

@testset "precision around the call does nothing" begin
    x = to_rarray(ones(2, 2))
    written() = String(Reactant.@code_hlo Bodies.product(x, x))
    naive = Reactant.compile(Bodies.product, (x, x))
    Reactant.with_config(
        () -> naive(x, x);
        dot_general_precision = Reactant.PrecisionConfig.HIGHEST,
    )
    @test occursin("DEFAULT", written())
    # ours: programs.jl, "precision is the compile's"
end
