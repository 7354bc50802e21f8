# The stand-in's Mesh, NamedSharding and slices against the originals: the plain-Julia parts of a
# snapshot of Reactant's sources, read into a module of their own with the C++ left out.
const SNAPSHOT = get(ENV, "PYREACTANT_TEST_REACTANT_SOURCE", "")

if isempty(SNAPSHOT)
    @info "PYREACTANT_TEST_REACTANT_SOURCE names no snapshot of Reactant's sources: not compared"
    @test_skip false
else
    include("original.jl")
end
