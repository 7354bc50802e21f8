const np = pyimport("numpy")

"""Slices for NumPy: (start, stop, step) of each axis."""
pyslices(axes...) = Tuple(pyimport("builtins").slice(a...) for a in axes)

"""
What NumPy has, as a PyArray of the memory itself. With a reference of its own, as an argument from
Python has: PyReactant lets go of it.
"""
as_numpy(x) = PythonCall.PyArray(PythonCall.pynew(x); copy = false)

# By bytes, because Julia would compile more than it computes: layout.jl has a hundred types.

"""A NumPy array with these elements in this order of memory."""
function numpy_of(@nospecialize(x::Array), order::String)
    flat = np.frombuffer(PythonCall.pybytes(bits(x)); dtype = numpy_dtype(eltype(x)))
    return as_numpy(np.array(flat.reshape(size(x); order = "F"); order))
end

numpy_dtype(::Type{ComplexF32}) = "complex64"
numpy_dtype(::Type{ComplexF64}) = "complex128"
numpy_dtype(::Type{T}) where {T} = lowercase(string(T))

"""The message and kind of what `f` throws."""
function wrong(f)
    try
        f()
    catch error
        return PyReactant.explain(error, nothing)[1:2]
    end
    return ("nothing", "nothing was thrown")
end

PyReactant.start_platform("cpu", 8)
const IDS = Tuple(row[1] for row in PyReactant.devices())

"""Place a whole array: each device gets its block of it."""
function place(x::AbstractArray, s)
    s = PyReactant.padded(s, ndims(x))
    found = PyReactant.blocks(s, size(x))
    cut(starts, stops) = x[(UnitRange(a + 1, b) for (a, b) in zip(starts, stops))...]
    data = Tuple(ndims(x) == 0 ? x : cut(starts, stops) for (_, starts, stops) in found)
    name = PyReactant.element_name(eltype(x))
    return PyReactant.from_blocks(name, size(x), s, Tuple((id,) for (id, _, _) in found), data...)
end

"""Read an array back from its shards."""
function whole(x)
    result = Array{x.type}(undef, x.shape)
    for (i, (_, starts, stops)) in enumerate(PyReactant.shards(x))
        block = Array{x.type}(undef, Tuple(stops .- starts))
        PyReactant.read_shard(x, i - 1, block)
        view(result, (UnitRange(a + 1, b) for (a, b) in zip(starts, stops))...) .= block
    end
    return result
end

"""The bytes of its elements, the first index running fastest."""
function bits(@nospecialize(x::Array))
    start = Ptr{UInt8}(pointer(x))
    return GC.@preserve x copy(unsafe_wrap(Vector{UInt8}, start, sizeof(x)))
end
bits(x::PythonCall.PyArray) = bits(PythonCall.Py(x))
bits(x::PythonCall.Py) = PythonCall.pyconvert(Vector{UInt8}, x.tobytes("F"))

"""Shuffled without a random source: the same in each run."""
shuffled(ids, k) = Tuple(sort(collect(ids); by = id -> (7919 * (id + 1) * k) % 31))

"""The block of each device by the plain rule, counting over all axes of the mesh."""
function plain_rule(
    ids,
    @nospecialize(sizes),
    @nospecialize(names),
    @nospecialize(spec),
    @nospecialize(shape),
)
    sizes, names = collect(Int, sizes), collect(String, names)
    blocks = Dict{Int, Vector{UnitRange{Int}}}()
    for k in 0:(prod(sizes) - 1)
        at, left = zeros(Int, length(sizes)), k
        for axis in length(sizes):-1:1
            # the last one runs fastest
            left, at[axis] = divrem(left, sizes[axis])
        end
        ranges = UnitRange{Int}[]
        for (i, n) in enumerate(shape)
            number, cuts = 0, 1
            for name in named(spec[i])
                axis = findfirst(==(name), names)
                number, cuts = number * sizes[axis] + at[axis], cuts * sizes[axis]
            end
            push!(ranges, (number * (n ÷ cuts)):((number + 1) * (n ÷ cuts) - 1))
        end
        blocks[ids[k + 1]] = ranges
    end
    return blocks
end

named(entry) = entry === nothing ? String[] : entry isa String ? [entry] : collect(String, entry)

"""Blocks as Python gets them, in the same form."""
function by_device(blocks)
    return Dict{Int, Vector{UnitRange{Int}}}(
        id => [a:(b - 1) for (a, b) in zip(from, to)]
        for (id, from, to) in blocks
    )
end
