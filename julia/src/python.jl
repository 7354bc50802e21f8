"""
    without_python(f)

Call `f` with Python's lock given up, so that Python's other threads go on: one of them tells the
supervisor that this process lives. `f` must not touch Python objects; memory of theirs it may.
"""
function without_python(f::F) where {F}
    locked = PythonCall.C.Py_IsInitialized() != 0 && PythonCall.C.PyGILState_Check() == 1
    return locked ? PythonCall.GIL.unlock(f) : f()
end
