# Memory order: no other file knows of it. NumPy arrays have any order and strides; Reactant
# takes Julia arrays, whose first index runs fastest. Axis i stays axis i, so a C-order array is
# transposed in memory: once, block by block, without a second copy.

# Only the functions that ask for an array's memory are compiled for its type. A program has arrays
# of many types and numbers of dimensions, and each would cost seconds at its first use.

function elements(@nospecialize(x::AbstractArray))
    return Elements(pointer_to_bytes(x), Int[size(x)...], Int[byte_strides(x)...])
end

"""
    to_julia(block, T) -> Array{T}

A Julia array with the elements of a NumPy array: same axes, elements of type `T`. Types that
ml_dtypes adds to NumPy arrive as unsigned integers with the same bits.
"""
function to_julia(@nospecialize(block::AbstractArray), T::DataType)
    check_element(block, T, "a block of $(element_name(T))")
    target = allocate(T, size(block))
    GC.@preserve block target copy_elements!(elements(target), elements(block), sizeof(T))
    return target
end

"""
    to_numpy!(out, source::Array)

Write a Julia array into NumPy memory of the same axes, whatever its order and strides.
"""
function to_numpy!(@nospecialize(out::AbstractArray), @nospecialize(source::Array))
    T = eltype(source)
    check_out(out, T, size(source))
    GC.@preserve out source copy_elements!(elements(out), elements(source), sizeof(T))
    return nothing
end

"""Whether `out` has Julia's order, so that no temporary Julia array is needed."""
function has_julia_order(m::Elements, step::Int)
    for (n, stride) in zip(m.shape, m.strides)
        stride == step || return false
        step *= n
    end
    return true
end

"""The types that ml_dtypes adds to NumPy."""
const CrossingAsBits = Union{Reactant.BFloat16, Reactant.ReactantFloat8}

function check_element(@nospecialize(x::AbstractArray), T::DataType, what::String)
    E = eltype(x)
    E === T && return nothing
    T <: CrossingAsBits && E === (sizeof(T) == 1 ? UInt8 : UInt16) && return nothing
    throw(Wrong(
        "InvalidArgumentError",
        "$what was needed, got elements of Julia's type $E; give an array of that dtype " *
            "(bfloat16 and float8 kinds as a view of unsigned integers)",
    ))
end

function check_out(@nospecialize(out::AbstractArray), T::DataType, @nospecialize(shape::Dims))
    check_element(out, T, "memory for $(element_name(T))")
    if size(out) != shape
        throw(Wrong("InvalidArgumentError", "memory of shape $shape was needed, got $(size(out))"))
    end
    if !is_writable(out)
        throw(Wrong("InvalidArgumentError", "the memory to write to is read-only; give another"))
    end
    return nothing
end

# The extension for Python has these three for NumPy's arrays.
is_writable(::StridedArray) = true
pointer_to_bytes(x::StridedArray) = Ptr{UInt8}(pointer(x))
byte_strides(x::StridedArray) = strides(x) .* sizeof(eltype(x))

"""
An uninitialized Julia array. It requests large pages from the kernel, as NumPy does for its own
arrays: without them filling a large array costs twice as much.
"""
function allocate(::Type{T}, shape::Dims{N}) where {T, N}
    array = Array{T, N}(undef, shape)
    @static if Sys.islinux()
        page, large, advice = 4096, 4 * 1024^2, 14 # MADV_HUGEPAGE
        if sizeof(array) >= large
            start = (UInt(pointer(array)) + page - 1) & ~UInt(page - 1)
            bytes = UInt(pointer(array)) + sizeof(array) - start
            @ccall madvise(Ptr{Cvoid}(start)::Ptr{Cvoid}, bytes::Csize_t, advice::Cint)::Cint
        end
    end
    return array
end
