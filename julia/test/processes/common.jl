using Test
using PythonCall: pyimport

for name in ("jax", "jaxlib", "tensorflow")
    pyimport("sys").modules[name] = nothing
end

using PyReactantStart: PyReactantStart
PyReactantStart.load()
using PyReactant
using Reactant

include("../mutate.jl")

function wrong(f)
    try
        f()
    catch error
        return PyReactant.explain(error, nothing)[1:2]
    end
    return ("nothing", "nothing was thrown")
end
