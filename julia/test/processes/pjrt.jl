include("common.jl")
using Reactant.Sharding: Mesh, NamedSharding

@test PyReactant.runtime() == "PJRT"
@test Reactant.XLA.REACTANT_XLA_RUNTIME == "PJRT"
m = Mesh([0, 1, 2, 3], [1, 0, 3, 2], (:x,), (4,))
naive = () -> Reactant.to_rarray(ones(8); sharding = NamedSharding(m, (:x,)))
@test occursin("PJRT doesn't support non-iota meshes", last(wrong(naive)))
for f in (
        () -> PyReactant.start_platform("cpu", 4),
        () -> PyReactant.initialize("127.0.0.1:9", 2, 0, (), true, "", 1, 1),
    )
    kind, message = wrong(f)
    @test kind == "RequirementError"
    @test occursin(
        "runtime IFRT, but Reactant was built with PJRT; run: pyreactant prefs set",
        message,
    )
end
