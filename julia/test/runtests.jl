# Tests of PyReactant over the stand-in for Reactant beside this file, in a real Julia.
# tests/julia/test_julia_side.py starts them; by hand, with a Python that has NumPy:
#   JULIA_PYTHONCALL_EXE=python3 JULIA_CONDAPKG_BACKEND=Null XLA_FLAGS=... \
#   JULIA_LOAD_PATH=PROJECT:julia/test/Reactant:julia/start:julia:@stdlib \
#   julia julia/test/runtests.jl [FILE ...]
using PythonCall: PythonCall, pyimport
using Test

# As pyreactant does before Reactant loads: its extension would import them.
for name in ("jax", "jaxlib", "tensorflow")
    pyimport("sys").modules[name] = nothing
end

using PyReactantStart: PyReactantStart
PyReactantStart.load()
using PyReactant
using Reactant

include("mutate.jl")
include("common.jl")
include("shared.jl")

const FILES = [
    "start",
    "layout",
    "meshes",
    "arrays",
    "trees",
    "programs",
    "names",
    "traps",
    "processes",
    "against_reactant",
]

@testset "PyReactant" begin
    @testset "$file" for file in (isempty(ARGS) ? FILES : ARGS)
        include("$file.jl")
    end
end
