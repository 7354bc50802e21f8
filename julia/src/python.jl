"""A call to make later. It has one type whatever it calls, so Julia compiles it once."""
struct Later <: Function
    f::Any
    args::Tuple
end

(l::Later)() = l.f(l.args...)

"""
    without_python(f, args...)

Call `f` without Python's lock, so that Python's other threads continue: one of them sends the
pulse to the supervisor. `f` must not touch Python objects, but may use their memory.
"""
function without_python(@nospecialize(f), @nospecialize(args...))
    later = Later(f, args)
    locked = PythonCall.C.Py_IsInitialized() != 0 && PythonCall.C.PyGILState_Check() == 1
    return locked ? PythonCall.GIL.unlock(later) : later()
end

"""
    lent(f, args, arrays)

Call `f`, then release the NumPy arrays that it was given; nothing may use them afterwards.
Otherwise they live until Julia's collector runs, which does not see their memory.
"""
function lent(f::Function, args::Tuple, arrays::Vector{Any})
    try
        return Later(f, args)()
    finally
        for x in arrays
            x isa PythonCall.PyArray && let_go(x)
        end
    end
end

# Both are references to the memory (PythonCall's src/API/types.jl:74-75).
function let_go(@nospecialize(x::PythonCall.PyArray))
    PythonCall.pydel!(x.py)
    PythonCall.pydel!(x.handle)
    return nothing
end

"""The items of a tuple, without code that is compiled for its type."""
items(@nospecialize(t::Tuple)) = Any[getfield(t, i) for i in 1:nfields(t)]
