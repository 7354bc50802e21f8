using Test
using PythonCall: pyimport

for name in ("jax", "jaxlib", "tensorflow")
    pyimport("sys").modules[name] = nothing
end

using PyReactant
using Reactant

function wrong(f)
    try
        f()
    catch error
        return PyReactant.explain(error)
    end
    return ("nothing", "nothing was thrown")
end
