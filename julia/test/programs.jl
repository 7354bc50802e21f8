using PyReactant: is_single, lower, outputs, run, settle, text

@testset "one result, several, none of the compiler's choice" begin
    c = body("double", (X,), (S,))
    @test is_single(c)
    @test first(outputs(c))[1:2] == ("float64", (8, 8))
    @test whole(run(c, X)) == 2 .* whole(X)
    @test whole(c(c(X))) == 4 .* whole(X) # its result is an argument like any other
    pair = body("pair", (X, X), (S, sharding(M, ())))
    @test !is_single(pair)
    total, sum_ = pair(X, X)
    @test whole(total) == 2 .* whole(X)
    @test whole(sum_) == fill(sum(1.0:64.0))
    @test outputs(pair)[2][1:2] == ("float64", ())
end

@testset "placement of each output" begin
    c = body("double", (X,), (sharding(M, ("y",)),))
    @test Dict(id => (a, b) for (id, a, b) in outputs(c)[1][3]) ==
        Dict(
            id => (Tuple(a), Tuple(b))
            for (id, a, b) in PyReactant.blocks(sharding(M, ("y", nothing)), (8, 8))
        )
    free = body("double", (X,))
    y = free(X)
    @test whole(y) == 2 .* whole(X)
    kind, message = wrong(() -> body("double", (y,)))
    @test kind == "StateError"
    @test occursin(
        "argument 0 comes from a program whose output shardings are not settled",
        message,
    )
    settle(free, (S,))
    @test whole(body("double", (free(X),))(free(X))) == 4 .* whole(X)
    kind, message = wrong(() -> settle(free, (sharding(M, ("y",)),)))
    @test kind == "MismatchError"
    @test occursin("output 0 must lie as", message)
end

@testset "results that are arguments, the same twice, numbers, constants, views" begin
    @test whole(body("back", (X,), (S,))(X)) == whole(X)
    one, two = body("twice_the_same", (X,), (S,))(X)
    @test whole(one) == whole(two) == whole(X)
    @test whole(body("number", (X,), (sharding(M, ()),))(X)) == fill(7)
    @test whole(body("constant", (X,), (sharding(M, ("x",)),))(X)) == [1.0 2.0; 3.0 4.0]
    @test whole(body("turned", (X,), (S,))(X)) == whole(X)'
    a = place(fill(3.0), sharding(M, ()))
    @test whole(body("by_scalar", (X, a), (S,))(X, a)) == 3 .* whole(X)
end

@testset "static values are part of a program" begin
    c = body("scaled", (X,), (S,); static = (("by", 2), ("times", 5)))
    @test whole(c(X)) == 10 .* whole(X)
end

@testset "what a program may not do" begin
    for (name, out, kind, said) in (
            ("writes", (S,), "InvalidArgumentError", "writes to its argument 0; programs are pure"),
            ("text_of", (S,), "InvalidArgumentError", "must return an array, a number or a tuple"),
            ("double", (S, S), "ShardingError", "returned 1 arrays, but 2 output shardings"),
            ("constant", (S,), "ShardingError", "not divisible"),
            ("throws", (S,), "", "no luck today"),
        )
        found, message = wrong(() -> body(name, (X,), out))
        @test found == kind
        @test occursin(said, message)
    end
end

@testset "arguments are those it was compiled for" begin
    c = body("double", (X,), (S,))
    smaller = place(zeros(4, 4), S)
    otherwise = place(zeros(8, 8), sharding(M, ("y", "x")))
    shorter = place(zeros(Float32, 8, 8), S)
    for x in (smaller, otherwise, shorter, 3)
        kind, message = wrong(() -> c(x))
        @test kind == "InvalidArgumentError"
        @test occursin("compiled for float64[8, 8]", message)
    end
    @test occursin("takes 1 arrays, got 2", last(wrong(() -> c(X, X))))
    @test whole(c(place(
        ones(8, 8),
        sharding(mesh(Tuple(M.ids), (2, 4), ("x", "y")), ("x", "y")),
    ))) ==
        fill(2.0, 8, 8)
end

@testset "compiled once, whatever is called how often" begin
    before = Reactant.COMPILATIONS[]
    c = body("double", (X,), (S,))
    for _ in 1:5
        c(X)
    end
    @test Reactant.COMPILATIONS[] == before + 1
    out = zeros(8, 8)
    foreach(_ -> PyReactant.gather(c(X), out), 1:3)
    @test Reactant.COMPILATIONS[] == before + 2 # gather's own, once
end

@testset "precision is the compile's" begin
    for (precision, said) in (("highest", "HIGHEST"), ("high", "HIGH"), ("", "DEFAULT"))
        c = body("product", (X, X), (S,); precision)
        @test occursin("precision = [$said, $said]", text(c, "stablehlo"))
    end
    @test Reactant.PRECISION[] == Reactant.PrecisionConfig.DEFAULT
end

@testset "text" begin
    c = body("double", (X,), (S,))
    @test occursin("sdy.sharding", text(c, "stablehlo"))
    @test occursin("mhlo.sharding", text(c, "stablehlo_mhlo"))
    @test !occursin("sharding", text(c, "stablehlo_unsharded"))
    @test occursin("HloModule", text(c, "hlo"))
    kind, message = wrong(() -> text(c, "llvm"))
    @test kind == "InvalidArgumentError"
    @test occursin("stage is one of hlo, stablehlo, stablehlo_mhlo, stablehlo_unsharded", message)
end

@testset "text of what was never placed" begin
    # 2^40 elements, on a mesh whose devices are not in order.
    ids = (3, 1, 0, 2, 7, 6, 5, 4)
    m = mesh(ids, (4, 2), ("x", "y"))
    inputs = (
        ("bfloat16", (2^20, 2^20), sharding(m, ("x", "y"))),
        ("bfloat16", (2^18, 2^20), sharding(m, (nothing, ("y", "x")))),
    )
    out = (sharding(m, ("x",)),)
    name = "PyReactant.TestBodies.product"
    found = @timed lower(name, "", inputs, out, "highest", ())
    @test found.bytes < 2^30
    lines = [strip(line) for line in split(found.value, '\n')]
    @test startswith(lines[1], "module @reactant_traced attributes {mhlo.num_partitions = 8 : i64")
    @test lines[2] == "sdy.mesh @mesh = <[\"x\"=4, \"y\"=2], device_ids=[3, 1, 0, 2, 7, 6, 5, 4]>"
    @test startswith(
        lines[3],
        "func.func @main(%arg0: tensor<1048576x1048576xbf16> " *
            "{sdy.sharding = #sdy.sharding<@mesh, [{\"y\"}, {\"x\"}]>}, " *
            "%arg1: tensor<1048576x262144xbf16> " *
            "{sdy.sharding = #sdy.sharding<@mesh, [{\"y\", \"x\"}, {}]>}) " *
            "-> (tensor<262144x1048576xbf16>)",
    )
    @test [split(line)[3] for line in lines[4:9]] ==
        [
            "stablehlo.transpose", # the module's ends are Julia's arrays, reversed
            "stablehlo.transpose",
            "stablehlo.transpose", # the program's own
            "stablehlo.dot_general",
            "sdy.sharding_constraint",
            "stablehlo.transpose",
        ]
    @test occursin("<@mesh, [{\"x\"}, {}]> : tensor<1048576x262144xbf16>", lines[8])
    @test occursin("precision = [HIGHEST, HIGHEST]", lines[7])
    uneven = (("float32", (6, 8), sharding(m, ())), ("float32", (8, 8), sharding(m, ())))
    kind, message = wrong(() -> lower(name, "", uneven, out, "", ()))
    @test kind == "ShardingError"
    @test occursin("dimension 0 of shape (6, 8) is not divisible by 4", message)
    unknown = lower("PyReactant.TestBodies.double", "", uneven[1:1], nothing, "", ())
    @test occursin("@the_stand_in_for_reactant_cannot_write_this_program(%arg0)", unknown)
end
