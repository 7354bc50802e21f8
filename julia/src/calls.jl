"""A call to make later. It has one type whatever it calls, so Julia compiles it once."""
struct Later <: Function
    f::Any
    args::Tuple
end

(l::Later)() = l.f(l.args...)

run_now(later::Later) = later()

"""What makes a call without Python's lock. There is none until the extension for Python says so."""
const UNLOCKED = Ref{Function}(run_now)

"""
    without_python(f, args...)

Call `f` without Python's lock, so that Python's other threads continue: one of them sends the
pulse to the supervisor. `f` must not touch Python objects, but may use their memory.
"""
without_python(@nospecialize(f), @nospecialize(args...)) = UNLOCKED[](Later(f, args))

"""
    lent(f, args, arrays)

Call `f`, then release the NumPy arrays that it was given; nothing may use them afterwards.
Otherwise they live until Julia's collector runs, which does not see their memory.
"""
function lent(f::Function, args::Tuple, arrays::Vector{Any})
    try
        return Later(f, args)()
    finally
        foreach(let_go, arrays)
    end
end

"""Release a NumPy array. An array of Julia's own has nothing to release."""
let_go(@nospecialize(x)) = nothing

"""The items of a tuple, without code that is compiled for its type."""
items(@nospecialize(t::Tuple)) = Any[getfield(t, i) for i in 1:nfields(t)]
