"""
PyReactant called from Python: NumPy's memory is read and written where it lies, and Python's lock
is given up while Julia waits or compiles. Julia loads this where PythonCall is loaded too.
"""
module PyReactantPythonCallExt

using PythonCall: PythonCall, PyArray

# The process that precompiles this loads Reactant's Python extension too, which would import jax
# there. Otherwise pyreactant blocks these names before Julia starts.
if ccall(:jl_generating_output, Cint, ()) == 1
    for name in ("jax", "jaxlib", "tensorflow")
        PythonCall.pyimport("sys").modules[name] = nothing
    end
end

using PyReactant: PyReactant, Later

function unlocked(later::Later)
    locked = PythonCall.C.Py_IsInitialized() != 0 && PythonCall.C.PyGILState_Check() == 1
    return locked ? PythonCall.GIL.unlock(later) : later()
end

# Both are references to the memory (PythonCall's src/API/types.jl:74-75).
function PyReactant.let_go(@nospecialize(x::PyArray))
    PythonCall.pydel!(x.py)
    PythonCall.pydel!(x.handle)
    return nothing
end

PyReactant.is_writable(::PyArray{T, N, M}) where {T, N, M} = M
PyReactant.pointer_to_bytes(x::PyArray) = Ptr{UInt8}(x.ptr)
PyReactant.byte_strides(x::PyArray) = x.strides

__init__() = PyReactant.UNLOCKED[] = unlocked

precompile(unlocked, (Later,))
precompile(PyReactant.let_go, (PyArray,))

end
