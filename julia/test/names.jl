using PyReactant: find_function

@testset "found" begin
    @test find_function("*", "") === Base.:*
    @test find_function("sum", "") === sum
    @test find_function("LinearAlgebra.norm", "")([3.0, 4.0]) == 5
    @test find_function("Base.Iterators.reverse", "") === Iterators.reverse
    @test find_function("PyReactant.TestBodies.double", "")(2) == 4
end

@testset "a user's own project" begin
    folder = joinpath(mktempdir(), "mein Projekt, ü")
    mkpath(joinpath(folder, "src"))
    uuid = "0d1f6c3e-7a52-4d0b-8f2e-5f0f5a6b7c88"
    write(
        joinpath(folder, "Project.toml"),
        "name = \"OwnModels\"\nuuid = \"$uuid\"\nversion = \"0.1.0\"\n",
    )
    write(joinpath(folder, "src", "OwnModels.jl"), "module OwnModels\ntriple(x) = 3 .* x\nend\n")
    inputs = (described(X),)
    c = compile(lower("p", "OwnModels.triple", folder, ("tuple", 0), inputs, (S,), "", ()))
    settle(c, (S,))
    @test whole(result(c, X)) == 3 .* whole(X)
    @test count(==(folder), LOAD_PATH) == 1
    PyReactant.use_project(folder)
    @test count(==(folder), LOAD_PATH) == 1
end

@testset "not found" begin
    for (name, said) in (
            ("NoSuchModule.f", "there is no Julia module 'NoSuchModule'"),
            ("PyReactant.NoSuch.f", "has no module 'NoSuch'"),
            ("PyReactant.TestBodies.nothing_here", "has no function 'nothing_here'"),
            ("nothing_here", "has no function 'nothing_here'"),
            (".+", "has no function '.+'"),
            ("PyReactant.TestBodies.not_a_function", "is not a Julia function, but a Int64"),
            ("run(`ls`)", "a Julia function is named as"),
            ("A b.c", "a Julia function is named as"),
            ("", "a Julia function is named as"),
            ("Main.", "a Julia function is named as"),
        )
        kind, message = wrong(() -> find_function(name, ""))
        @test kind == "InvalidArgumentError"
        @test occursin(said, message)
    end
    kind, message = wrong(() -> find_function("A.f", tempdir()))
    @test kind == "InvalidArgumentError"
    @test occursin("has no Project.toml", message)
end
