using PyReactant: body_of, description, optimized, outputs, run

@testset "one result, several, none of the compiler's choice" begin
    c = body("double", (X,), (S,))
    @test first(outputs(c))[1:2] == ("float64", (8, 8))
    @test whole(only(run(c, X))) == 2 .* whole(X)
    @test whole(result(c, result(c, X))) == 4 .* whole(X) # a result is an argument like any other
    pair = body("pair", (X, X), (S, sharding(M, ())))
    total, sum_ = pair(X, X)
    @test whole(total) == 2 .* whole(X)
    @test whole(sum_) == fill(sum(1.0:64.0))
    @test outputs(pair)[2][1:2] == ("float64", ())
end

@testset "placement of each output" begin
    by_rows = sharding(M, ("y", nothing))
    c = body("double", (X,), (sharding(M, ("y",)),))
    @test Dict(id => (a, b) for (id, a, b) in outputs(c)[1][3]) ==
        Dict(id => (Tuple(a), Tuple(b)) for (id, a, b) in PyReactant.blocks(by_rows, (8, 8)))
    free = body("double", (X,))
    @test whole(result(free, X)) == 2 .* whole(X)
    settle(free, (S,))
    @test whole(result(body("double", (X,), (S,)), result(free, X))) == 4 .* whole(X)
    kind, message = wrong(() -> settle(free, (sharding(M, ("y",)),)))
    @test kind == "MismatchError"
    @test occursin("output 0 must lie as", message)
    # Of several one may be left to the compiler.
    mixed = lowered("pair", (X, X), (nothing, sharding(M, ())))
    @test outputs(compile(mixed))[2][3] == [(id, (), ()) for id in sort(M.ids)]
end

@testset "a placement that the compiler does not keep is an error" begin
    Reactant.ELSEWHERE[] = true
    try
        for s in (S, sharding(M, ()), sharding(M, (nothing, "y")))
            kind, message = wrong(() -> body("double", (X,), (s,)))
            @test kind == "MismatchError"
            @test occursin("output 0 must lie as", message)
        end
    finally
        Reactant.ELSEWHERE[] = false
    end
end

@testset "results without elements" begin
    whole_spec = (0, 8)
    for s in (sharding(M, ("x", "y")), sharding(M, ("y",)), sharding(M, ()))
        y = result(body("no_rows", (X,), (s,)), X)
        @test PyReactant.shape_of(y) == whole_spec
        @test PyReactant.shards(y) ==
            [(id, Tuple(a), Tuple(b)) for (id, a, b) in PyReactant.blocks(y.sharding, whole_spec)]
        again = result(body("double", (y,), (s,)), y) # it is an argument like any other
        @test PyReactant.shape_of(again) == whole_spec
        PyReactant.gather(again, zeros(whole_spec))
    end
    @test PyReactant.shape_of(result(body("no_rows", (X,)), X)) ==
        whole_spec # the compiler's choice
end

@testset "a sharding that does not fit is left out: Python names the output" begin
    for s in (S, sharding(M, ("x", "y", nothing)))
        l = lowered("constant", (X,), (s,))
        @test last(description(l)) == [("float64", (2, 2))]
        @test !occursin("sharding_constraint", l.text)
        compile(l)
    end
end

@testset "results that are arguments, the same twice, numbers, constants, views" begin
    @test whole(result(body("back", (X,), (S,)), X)) == whole(X)
    one, two = body("twice_the_same", (X,), (S,))(X)
    @test whole(one) == whole(two) == whole(X)
    @test whole(result(body("number", (X,), (sharding(M, ()),)), X)) == fill(7)
    constant = body("constant", (X,), (sharding(M, ("x",)),))
    @test whole(result(constant, X)) == [1.0 2.0; 3.0 4.0]
    @test whole(result(body("turned", (X,), (S,)), X)) == whole(X)'
    a = place(fill(3.0), sharding(M, ()))
    @test whole(result(body("by_scalar", (X, a), (S,)), X, a)) == 3 .* whole(X)
end

@testset "static values are part of a program" begin
    c = body("scaled", (X,), (S,); static = (("by", 2), ("times", 5)))
    @test whole(result(c, X)) == 10 .* whole(X)
end

@testset "what a program may not do" begin
    for (name, kind, said) in (
            ("writes", "InvalidArgumentError", "writes to its argument 0; programs are pure"),
            ("text_of", "InvalidArgumentError", "must return arrays, numbers or nothing, and tup"),
            ("unfit", "InvalidArgumentError", "vectors of these, got a Unfit"),
            ("nothing_at_all", "InvalidArgumentError", "a tree of arrays, got (nothing, ())"),
            ("changing", "InvalidArgumentError", "must return the same whenever it is traced"),
            ("throws", "", "no luck today\nthrown at $(joinpath(@__DIR__, "shared.jl")):"),
            ("throws_badly", "", "\\e[31mno\\0 luck \\xff"),
            ("of_abstract_type", "InvalidArgumentError", "elements of type Real, which NumPy does"),
        )
        found, message = wrong(() -> body(name, (X,)))
        @test found == kind
        @test occursin(said, message)
    end
    found, message = wrong(() -> lowered("double", (X,), (S, S)))
    @test found == "InvalidArgumentError"
    @test occursin("got 1 arrays after 2", message)
end

@testset "the place of an error" begin
    f = Bodies.throws
    file = joinpath(@__DIR__, "shared.jl")
    own = (f_name = "helper(x)", file, line = 7)
    other = (f_name = "sum(x)", file = "reduce.jl", line = 3)
    @test PyReactant.place_of(f, [], [own, other]) == "thrown in helper(x), which is at $file:7"
    @test startswith(PyReactant.place_of(f, [], []), "thrown in throws, which is at $file:")
    @test PyReactant.place_of(f, [(; file = Symbol(file), line = 5)], [own]) == "thrown at $file:5"
    @test PyReactant.place_of(sum, [], [own]) == ""
    from_text = include_string(Bodies, "from_text(x) = error(\"no file\")")
    @test PyReactant.place_of(from_text, [], [own]) == ""
    text = last(PyReactant.explain(StackOverflowError(), nothing)[1:2])
    @test text == "StackOverflowError: a function calls itself without end"
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
    same = sharding(mesh(Tuple(M.ids), (2, 4), ("x", "y")), ("x", "y"))
    @test whole(result(c, place(ones(8, 8), same))) == fill(2.0, 8, 8)
end

@testset "compiled once, whatever is called how often" begin
    before = Reactant.COMPILATIONS[]
    c = body("double", (X,), (S,))
    for _ in 1:5
        c(X)
    end
    @test Reactant.COMPILATIONS[] == before + 1
    out = zeros(8, 8)
    foreach(_ -> PyReactant.gather(result(c, X), out), 1:3)
    @test Reactant.COMPILATIONS[] == before + 2 # gather's own, once
end

@testset "a function runs when it is traced, and never when its program is called" begin
    runs() = (Bodies.RUNS[], Bodies.PLACES[])
    l = lowered("counted", (X,), (S,))
    @test runs() == (1, 1)
    c = compile(l)
    settle(c, (S,))
    @test runs() == (2, 2)
    Bodies.BY[] = 5 # too late
    @test all(_ -> whole(result(c, X)) == 2 .* whole(X), 1:3)
    @test optimized(c) isa String
    @test runs() == (2, 2)
end

@testset "what a program does cannot depend on values" begin
    for (name, said) in (("branches", "non-boolean"), ("by_mask", "depends on values"))
        @test occursin(said, last(wrong(() -> body(name, (X,)))))
    end
end

module Changing
    f(x) = 2 .* helper(x)
    helper(x) = x
    g(x) = x
end
@eval PyReactant const TestChanging = $Changing

@testset "a function is traced as it is defined now" begin
    text() = lower("p", "PyReactant.TestChanging.f", "", ("tuple", 0), (described(X),), (), "", ())
    first_one = text()
    @test text().text == first_one.text
    old = compile(first_one)
    settle(old, (S,))
    was = body_of("PyReactant.TestChanging.f", "")
    @test body_of("PyReactant.TestChanging.f", "") == was
    @eval Changing helper(x) = x .+ 1
    @test text().text != first_one.text
    @test body_of("PyReactant.TestChanging.f", "") == was
    @eval Changing f(x) = 3 .* helper(x)
    @test body_of("PyReactant.TestChanging.f", "") != was
    @test body_of("PyReactant.TestChanging.g", "") != was
    new = compile(text())
    settle(new, (S,))
    @test whole(result(new, X)) == 3 .* (whole(X) .+ 1)
    @test whole(result(old, X)) == 2 .* whole(X) # as it was when it was compiled
end

@testset "precision is the compile's" begin
    for (precision, said) in (("highest", "HIGHEST"), ("high", "HIGH"), ("", "DEFAULT"))
        l = lowered("product", (X, X), (S,); precision)
        @test occursin("precision = [$said, $said]", l.text)
        @test occursin("precision = [$said, $said]", optimized(compile(l)))
    end
    @test Reactant.PRECISION[] == Reactant.PrecisionConfig.DEFAULT
end

@testset "text" begin
    l = lowered("double", (X,), (S,))
    @test first(description(l)) == l.text
    @test occursin("sdy.sharding", l.text)
    @test occursin("HloModule", optimized(compile(l)))
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
    found = @timed lower("p", name, "", ("tuple", 0, 1), inputs, out, "highest", ())
    @test found.bytes < 2^30
    @test last(description(found.value)) == [("bfloat16", (2^20, 2^18))]
    lines = [strip(line) for line in split(found.value.text, '\n')]
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
    uneven = (("float32", (6, 8), sharding(m, ())),)
    name = "PyReactant.TestBodies.double"
    unknown = lower("p", name, "", ("tuple", 0), uneven, (), "", ()).text
    @test occursin("@the_stand_in_for_reactant_cannot_write_this_program(%arg0)", unknown)
end
