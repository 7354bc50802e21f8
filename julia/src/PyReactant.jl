"""
What pyreactant runs in Julia: meshes, arrays and programs of Reactant.jl, for Python. A Julia
program that uses it loads no Python: what PythonCall is needed for is in the package's extension
(ext/).

Python calls the named functions of this module with tuples, strings, numbers and NumPy arrays.
Axis i of a Python array is axis i here; only `layout.jl` knows of memory order. Device ids are
Reactant's own. Nothing here prints or compares an array on devices: with Reactant that is a
collective operation, which hangs unless every process does it.
"""
module PyReactant

using Reactant: Reactant

const XLA = Reactant.XLA

include("errors.jl") # errors that Python raises as its own
include("calls.jl")  # calls without Python's lock; NumPy arrays lent for one call
# the runtime
include("distributed.jl") # join the other processes
include("devices.jl")     # start the platform and list its devices
include("launched.jl")    # both, for a Julia program under `pyreactant run`
# an array: from NumPy to the devices
include("elements.jl") # element types by NumPy's names
include("copying.jl")  # copies between memories of any strides
include("layout.jl")   # memory order: NumPy's arrays and Julia's
include("meshes.jl")   # meshes, shardings, and the blocks of an array
include("arrays.jl")   # place blocks on devices
# a program: from a name to its results
include("names.jl")    # find the function
include("trees.jl")    # its arguments and results: Python's containers as Julia's
include("tracing.jl")  # the function that Reactant traces in its place
include("lowering.jl") # lower it to StableHLO for arguments of these types and shardings
include("compile.jl")  # compile it
include("running.jl")  # run it
# an array: back to NumPy
include("reading.jl") # read blocks, or gather all of them

include("programs/Programs.jl") # Julia bodies of the built-in programs
include("precompile.jl")        # compile the methods above with the package

end
