using PyReactant: body_of, find_function

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

"""A project with a package of this name, of one function `f` that gives `value`."""
function project_of(name, uuid, value; deps = "")
    folder = mktempdir()
    mkpath(joinpath(folder, "src"))
    line = isempty(uuid) ? "" : "uuid = \"$uuid\"\n"
    write(joinpath(folder, "Project.toml"), "name = \"$name\"\n$line\n[deps]\n$deps")
    write(joinpath(folder, "src", "$name.jl"), "module $name\nf(x) = $value\nend\n")
    return folder
end

@testset "two projects with packages of one name" begin
    one = project_of("SharedName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a01", 1)
    two = project_of("SharedName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a02", 2)
    copied = project_of("SharedName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a01", 3)
    @test Base.invokelatest(find_function("SharedName.f", one), 0) == 1
    @test Base.invokelatest(find_function("SharedName.f", one), 0) == 1
    for (folder, said) in ((two, "another package of that name"), (copied, "loaded a copy of it"))
        kind, message = wrong(() -> find_function("SharedName.f", folder))
        @test kind == "StateError"
        @test occursin(said, message)
        @test occursin(one, message)
        @test occursin(folder, message)
    end
end

@testset "a package named like another on the load path" begin
    named = project_of("TestedName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a03", 5)
    before = project_of("TestedName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a04", 4)
    pushfirst!(LOAD_PATH, before)
    try
        @test Base.invokelatest(find_function("TestedName.f", named), 0) == 5
    finally
        popfirst!(LOAD_PATH)
    end
    norm = "LinearAlgebra = \"37e2e46d-f89d-539d-b4ee-838fcccc9c8e\"\n"
    other = project_of("OtherName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a05", 6; deps = norm)
    @test find_function("LinearAlgebra.norm", other)([3.0, 4.0]) == 5
    without = project_of("WithoutUuid", "", 7)
    @test Base.invokelatest(find_function("WithoutUuid.f", without), 0) == 7
end

@testset "source that has changed" begin
    folder = project_of("EditedName", "6a7d0c52-2c35-4a07-bd4f-3f1f0c1f2a06", 1)
    source = joinpath(folder, "src", "EditedName.jl")
    @test Base.invokelatest(find_function("EditedName.f", folder), 0) == 1
    touch(source)
    @test Base.invokelatest(find_function("EditedName.f", folder), 0) == 1 # as it was
    write(source, "module EditedName\nf(x) = 12\nend\n")
    for f in (() -> find_function("EditedName.f", folder), () -> body_of("EditedName.f", folder))
        kind, message = wrong(f)
        @test kind == "StateError"
        @test occursin("EditedName.jl has changed since Julia loaded the package", message)
    end
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
