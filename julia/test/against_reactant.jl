# The stand-in against Reactant's sources: every name that julia/src uses (internal_names.toml), and
# Mesh, NamedSharding and slices. Of these the plain-Julia parts of a checkout are read into a
# module of their own, with the C++ left out.
using TOML: TOML

const SNAPSHOT = get(ENV, "PYREACTANT_TEST_REACTANT_SOURCE", "")
const LISTED = TOML.parsefile(joinpath(@__DIR__, "internal_names.toml"))

"""A name such as XLA.IFRT.Array in the stand-in, or nothing."""
function in_stand_in(name)
    found = Reactant
    for part in Symbol.(split(name, '.'))
        (found isa Module ? isdefined(found, part) : hasproperty(found, part)) || return nothing
        found = getproperty(found, part)
    end
    return Some(found)
end

@testset "the stand-in has $(row["name"])" for row in LISTED["names"]
    @test (in_stand_in(row["name"]) !== nothing) == get(row, "stand_in", true)
end

if isempty(SNAPSHOT)
    @info "PYREACTANT_TEST_REACTANT_SOURCE names no checkout of Reactant's sources: not compared"
    @test_skip false
else
    squeezed(text) = replace(text, r"\s+" => " ")

    @testset "the sources have $(row["name"])" for row in [LISTED["names"]; LISTED["uses"]]
        @test occursin(
            squeezed(row["text"]),
            squeezed(read(joinpath(SNAPSHOT, row["file"]), String)),
        )
    end
    @test occursin("version = \"0.2.280\"", read(joinpath(SNAPSHOT, "Project.toml"), String))
    include("original.jl")
end
