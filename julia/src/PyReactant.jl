"""
What pyreactant runs in Julia: meshes, arrays and programs of Reactant.jl, for Python.

Python calls the named functions of this module with tuples, strings, numbers and NumPy arrays.
Axis i of a Python array is axis i here; only `layout.jl` knows of memory order. Device ids are
Reactant's own. Nothing here prints or compares an array on devices: with Reactant that is a
collective operation, which hangs unless every process does it.
"""
module PyReactant

using PythonCall: PythonCall

# The process that precompiles this package loads Reactant's Python extension too, which would
# import jax there. Otherwise pyreactant blocks these names before Julia starts.
if ccall(:jl_generating_output, Cint, ()) == 1
    for name in ("jax", "jaxlib", "tensorflow")
        PythonCall.pyimport("sys").modules[name] = nothing
    end
end

using Reactant: Reactant

const XLA = Reactant.XLA

include("errors.jl")
include("python.jl")
include("distributed.jl")
include("elements.jl")
include("copying.jl")
include("layout.jl")
include("meshes.jl")
include("arrays.jl")
include("reading.jl")
include("names.jl")
include("tracing.jl")
include("compile.jl")
include("running.jl")
include("text.jl")
include("devices.jl")
include("programs/Programs.jl")
include("precompile.jl")

end
