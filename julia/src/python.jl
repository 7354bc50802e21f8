"""A call for later: of one type whatever it calls, so that nothing is compiled anew for it."""
struct Later <: Function
    f::Any
    args::Tuple
end

(l::Later)() = l.f(l.args...)

"""
    without_python(f, args...)

Call `f` with Python's lock given up, so that Python's other threads go on: one of them tells the
supervisor that this process lives. `f` must not touch Python objects; memory of theirs it may.
"""
function without_python(@nospecialize(f), @nospecialize(args...))
    later = Later(f, args)
    locked = PythonCall.C.Py_IsInitialized() != 0 && PythonCall.C.PyGILState_Check() == 1
    return locked ? PythonCall.GIL.unlock(later) : later()
end

"""
    lent(f, args, arrays)

Call `f`, and then let go of NumPy arrays that it was given: nothing here may use them any more.
Julia's collector would keep their memory until it runs, and that memory does not move it to run.
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

"""What a tuple holds, without code that is compiled for its type."""
items(@nospecialize(t::Tuple)) = Any[getfield(t, i) for i in 1:nfields(t)]
