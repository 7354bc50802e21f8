# The real Reactant has no such extension. It does what most tests do, once, so that Julia compiles
# that with this package and not in each of the tests' processes. PyReactantStart is one of the
# packages that it waits for, so that it is not loaded while PyReactant's own extension, which it
# needs, is being compiled.
module ReactantPyReactantExt

using PythonCall: PythonCall

# As PyReactant's own extension does: the one for Python beside this would import jax.
if ccall(:jl_generating_output, Cint, ()) == 1
    for name in ("jax", "jaxlib", "tensorflow")
        PythonCall.pyimport("sys").modules[name] = nothing
    end
end

using PrecompileTools: @compile_workload
using PyReactant: PyReactant

const SHAPES = ((), (8,), (8, 8))

"""What Python does with arrays of this type: calls of Julia's functions through Python."""
function session(julia, numpy, dtype, shape)
    mesh = julia.mesh(Tuple(0:7), (2, 4), ("x", "y"))
    spec = ("x", "y")[1:length(shape)]
    sharding = julia.sharding(mesh, spec)
    dims = shape .÷ (2, 4)[1:length(shape)]
    block = numpy.ones(dims; dtype)
    holders = isempty(shape) ?
        (Tuple(0:7),) :
        length(shape) == 1 ? ((0, 1, 2, 3), (4, 5, 6, 7)) : Tuple((id,) for id in 0:7)
    held = julia.from_blocks(dtype, shape, sharding, holders, map(_ -> block, holders)...)
    # Products need two dimensions; the rest is added.
    name = length(shape) == 2 ? "*" : "+"
    inputs = ((dtype, shape, sharding), (dtype, shape, sharding))
    for wanted in ((), (sharding,))
        structure = ("tuple", 0, 1)
        lowered = julia.lower("p", name, "", structure, inputs, wanted, "highest", ())
        foreach(identity, julia.description(lowered))
        f = julia.compile(lowered)
        rows = julia.outputs(f)
        foreach(row -> foreach(identity, row[2]), rows)
        julia.settle(f, (sharding,))
        result = first(f(held, held))
        foreach(identity, julia.shards(result))
        julia.read_shard(result, 0, numpy.ones(dims; dtype))
        julia.gather(result, numpy.ones(shape; dtype))
    end
    return nothing
end

function say_something_wrong(julia)
    try
        julia.mesh((0, 0), (2,), ("x",))
    catch error
        sprint(showerror, error)
    end
    return nothing
end

if ccall(:jl_generating_output, Cint, ()) == 1 && PyReactant.runtime() == "IFRT"
    ENV["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    @compile_workload begin
        julia = PythonCall.Py(PyReactant)
        numpy = PythonCall.pyimport("numpy")
        julia.versions()
        julia.runtime()
        julia.start_platform("cpu", 8)
        foreach(identity, julia.devices())
        foreach(shape -> session(julia, numpy, "float32", shape), SHAPES)
        session(julia, numpy, "float64", last(SHAPES))
        say_something_wrong(julia)
    end
end

end
