# PYTHONPATH has a jax and a tensorflow that only say that they were loaded.
using PythonCall: pyimport
using Reactant
using Test

@test Reactant.IMPORTED == ["jax", "tensorflow"]
@test "jax" in pyimport("sys").modules
