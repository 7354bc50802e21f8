"""What benchmarks/julia.py compares with: the same from Julia alone."""
module Timing

"""Seconds of each of `n` calls of a compiled program's thunk with its arrays, from Julia."""
function thunk(compiled, held::Tuple, n)
    arrays = map(x -> x.array, held)
    f = compiled.thunk
    return Base.invokelatest(calls, f, arrays, n)
end

function calls(f, arrays, n)
    f(arrays...)
    return Tuple(@elapsed(f(arrays...)) for _ in 1:n)
end

end
