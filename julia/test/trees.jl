using PyReactant: argument_with, build, description, flatten!

@testset "descriptions" begin
    arrays = Any[[1.0], [2.0 3.0], 4.0, [5.0], 6]
    for (node, tree) in (
            (nothing, nothing),
            (2, 4.0),
            (("tuple",), ()),
            (("tuple", 1, nothing), ([2.0 3.0], nothing)),
            (("named", ()), (;)),
            (
                ("named", ("b", "a key"), 0, ("tuple", 2)),
                NamedTuple{(:b, Symbol("a key"))}(([1.0], (4.0,))),
            ),
            (("list",), Any[]),
            (("list", 0, 3), [[1.0], [5.0]]),
            (("list", 0, 1), ([1.0], [2.0 3.0])),
            (("list", 2, 2), Any[4.0, 4.0]),
            (("list", 2, 4), (4.0, 6)),
            (("list", nothing), [nothing]),
            (("named", ("w", "rate"), 3, ("value", ("x", 2))), (w = [5.0], rate = ("x", 2))),
        )
        found = build(node, arrays)
        @test typeof(found) === typeof(tree)
        @test found == tree
    end
end

@testset "results" begin
    for (y, node, count) in (
            ([1.0], 0, 1),
            (3, 0, 1),
            (nothing, nothing, 0),
            (((), [1.0]), Any["tuple", Any["tuple"], 0], 1),
            ([1 2; 3 4]', 0, 1),
            (1:3, 0, 1),
            (Float32[], 0, 1),
            (Any[], Any["list"], 0),
            (Any[1.0, 2.0], Any["list", 0, 1], 2), # of numbers: a list because it may hold others
            ([[1.0], [2.0]], Any["list", 0, 1], 2),
            (
                (b = 1, a = (c = nothing,)),
                Any["named", Any["b", "a"], 0, Any["named", Any["c"], nothing]],
                1,
            ),
        )
        arrays = Any[]
        @test flatten!(arrays, y) == node
        @test length(arrays) == count
    end
    for y in ("text", :symbol, Dict("a" => 1), [(1, "text")], Some(1))
        kind, message = wrong(() -> flatten!(Any[], y))
        @test kind == "InvalidArgumentError"
        @test occursin("must return arrays, numbers or nothing, and tuples, named", message)
    end
end

@testset "the argument of an array" begin
    structure = ("tuple", 0, ("named", ("a", "b"), ("value", (2, 3)), ("list", 1, 2)), nothing, 3)
    @test [argument_with(structure, n) for n in 0:3] == [0, 1, 1, 3]
end

@testset "programs over trees" begin
    l = lowered("tree", (X,))
    node = Any[
        "named",
        Any["w", "more", "empty"],
        0,
        Any["tuple", Any["list", 1, nothing], Any["list", 2, 3]],
        Any["named", Any[]],
    ]
    @test description(l)[2] == node
    c = compile(l)
    settle(c, (S, sharding(M, ()), S, S))
    found = c(X)
    @test map(whole, found) == (whole(X), fill(sum(whole(X))), whole(X), whole(X) .+ 1)

    names = ("list", "numbers", "mixed", "rate")
    mixed = ("list", 0, ("named", ("deep",), 3))
    tree = ("named", names, ("list", 0, 1), ("list", 2, 2), mixed, ("value", 10))
    two = place(fill(2.0), sharding(M, ()))
    args = (X, X, two, X)
    kinds = body("kinds", args, (sharding(M, ()),); structure = ("tuple", tree))
    @test whole(result(kinds, args...)) == fill(1111)
    c = body("by_rate", args, (S,); structure = ("tuple", tree, 1))
    @test whole(result(c, args...)) == 10 .* (whole(X) .- 2)
end
