include("common.jl")
using Logging: NullLogger, with_logger

if only(ARGS) == "fails"
    # A GPU that does not start is logged, and everything runs on the CPU.
    naive = with_logger(Reactant.XLA.default_backend, NullLogger())
    @test Reactant.XLA.platform_name(naive) == "cpu"
    quietly(platform) = with_logger(NullLogger()) do
        Reactant.XLA.global_backend_state.initialized = false
        wrong(() -> PyReactant.start_platform(platform, 0))
    end
    for platform in ("", "gpu")
        said = quietly(platform)
        @test first(said) == "RequirementError"
        @test occursin("Failed to initialize client: cuda: CUDA_ERROR_NO_DEVICE", last(said))
    end
    Reactant.XLA.global_backend_state.initialized = false
    @test PyReactant.start_platform("cpu", 2) == "cpu"
    said = wrong(() -> PyReactant.start_platform("cpu", 5))
    @test first(said) == "StateError"
    @test occursin("5 CPU devices were asked for, but this process has 2", last(said))
    @test first(quietly("tpu")) == "RequirementError"
else
    Reactant.XLA.LOCAL_GPU_IDS[] = Int[]
    @test Reactant.XLA.num_devices(Reactant.XLA.default_backend()) == 0
    Reactant.XLA.global_backend_state.initialized = false
    Reactant.XLA.LOCAL_GPU_IDS[] = nothing
    PyReactant.initialize("127.0.0.1:0", 1, 0, (4, 5), false, "", 10, 10)
    @test PyReactant.start_platform("", 0) == "gpu"
    @test length(PyReactant.devices()) == 2
end
