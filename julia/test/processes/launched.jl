# One of two processes that take everything from the supervisor's variables.
include("common.jl")

const COUNT, INDEX = PyReactant.initialize()

@test (COUNT, INDEX) == (2, parse(Int, ENV["PYREACTANT_PROCESS_INDEX"]))
@test PyReactant.platform() == "cpu"
@test length(PyReactant.devices()) == 4
@test first(wrong(() -> PyReactant.initialize())) == "StateError" # it has joined
println("all is well")
