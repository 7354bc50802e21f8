# Copies between two memories of the same axes in any order, element by element as bits.

"""The memory of an array: its shape, and the bytes between neighbours on each axis."""
struct Elements
    start::Ptr{UInt8}
    shape::Vector{Int}
    strides::Vector{Int}
end

"""One axis of a copy: its length, and the bytes from one element to the next on either side."""
struct Axis
    length::Int
    target::Int
    source::Int
end

function copy_elements!(to::Elements, from::Elements, bytes::Int)
    any(iszero, from.shape) && return nothing
    axes = Axis[]
    for (n, t, s) in zip(from.shape, to.strides, from.strides)
        n == 1 || push!(axes, Axis(n, t, s))
    end
    axes, target, source = merge_axes(axes), to.start, from.start
    # NumPy aligns complex numbers of 16 bytes to 8 bytes only, UInt128 needs 16.
    bytes == 1 && return copy_axes!(Ptr{UInt8}(target), Ptr{UInt8}(source), axes)
    bytes == 2 && return copy_axes!(Ptr{UInt16}(target), Ptr{UInt16}(source), axes)
    bytes == 4 && return copy_axes!(Ptr{UInt32}(target), Ptr{UInt32}(source), axes)
    bytes == 8 && return copy_axes!(Ptr{UInt64}(target), Ptr{UInt64}(source), axes)
    return copy_axes!(Ptr{NTuple{2, UInt64}}(target), Ptr{NTuple{2, UInt64}}(source), axes)
end

"""Sort axes by their stride in the target, and merge those that are contiguous on both sides."""
function merge_axes(axes::Vector{Axis})
    sort!(axes; by = a -> abs(a.target))
    merged = Axis[]
    for a in axes
        if !isempty(merged)
            b = last(merged)
            if a.target == b.target * b.length && a.source == b.source * b.length
                merged[end] = Axis(a.length * b.length, b.target, b.source)
                continue
            end
        end
        push!(merged, a)
    end
    return merged
end

function copy_axes!(target::Ptr{U}, source::Ptr{U}, axes::Vector{Axis}) where {U}
    isempty(axes) && return unsafe_store!(target, unsafe_load(source))
    first_axis = popfirst!(axes)
    fastest = argmin([abs(a.source) for a in [first_axis; axes]])
    if fastest == 1
        over(axes) do t, s
            copy_line!(target + t, source + s, first_axis)
        end
    else
        second_axis = popat!(axes, fastest - 1)
        tile = Vector{U}(undef, (LINE ÷ sizeof(U))^2)
        over(axes) do t, s
            copy_plane!(target + t, source + s, first_axis, second_axis, tile)
        end
    end
    return nothing
end

"""Call `f` with the byte offsets (target, source) of each place on these axes."""
function over(f, axes::Vector{Axis})
    isempty(axes) && return f(0, 0)
    a = last(axes)
    rest = axes[1:(end - 1)]
    for i in 0:(a.length - 1)
        over((t, s) -> f(t + i * a.target, s + i * a.source), rest)
    end
    return nothing
end

"""
Bytes copied at once. The kernel clears new memory one large page at a time, which is then in the
cache; a longer copy would bypass the cache.
"""
const RUN = 2 * 1024^2

function copy_line!(target::Ptr{U}, source::Ptr{U}, a::Axis) where {U}
    if a.target == a.source == sizeof(U)
        for i in 0:(RUN ÷ sizeof(U)):(a.length - 1)
            n = min(RUN ÷ sizeof(U), a.length - i)
            unsafe_copyto!(target + i * sizeof(U), source + i * sizeof(U), n)
        end
    else
        for i in 0:(a.length - 1)
            unsafe_store!(target + i * a.target, unsafe_load(source + i * a.source))
        end
    end
    return nothing
end

# Planes, of which one axis runs fastest in the target and the other in the source.

"""Bytes of a cache line, and of the vectors that every processor has."""
const LINE, VECTOR = 64, 16

"""Tiles along a side of the part of a plane whose pages fit the processor's TLB."""
const PART = 64

"""
Transpose a plane: `a` runs fastest in the target, `b` in the source. Tiles are one cache line wide
in both directions, so that each line is read once and written once. Otherwise strides that are
powers of two would evict lines from the cache.
"""
function copy_plane!(target::Ptr{U}, source::Ptr{U}, a::Axis, b::Axis, tile::Vector{U}) where {U}
    whole = a.target == b.source == sizeof(U)
    stream = whole && can_stream(target, a, b)
    head = stream ? min(a.length, Int(-UInt(target) % LINE) ÷ sizeof(U)) : 0
    copy_elementwise!(target, source, Axis(head, a.target, a.source), b)
    target, source = target + head * a.target, source + head * a.source
    a = Axis(a.length - head, a.target, a.source)
    width = LINE ÷ sizeof(U)
    step = PART * width
    for a0 in 0:step:(a.length - 1), b0 in 0:step:(b.length - 1)
        for i in a0:width:(min(a0 + step, a.length) - 1), j in b0:width:(
                min(b0 + step, b.length) - 1
            )
            t = target + i * a.target + j * b.target
            s = source + i * a.source + j * b.source
            rows, columns = min(width, a.length - i), min(width, b.length - j)
            if whole && rows == columns == width
                fill_tile!(tile, s, a.source)
                GC.@preserve tile empty_tile!(t, b.target, pointer(tile), stream)
            else
                part = Axis(rows, a.target, a.source), Axis(columns, b.target, b.source)
                copy_elementwise!(t, s, part...)
            end
        end
    end
    stream && Threads.atomic_fence() # what was streamed is written before anyone reads it
    return nothing
end

function copy_elementwise!(target::Ptr{U}, source::Ptr{U}, a::Axis, b::Axis) where {U}
    for j in 0:(b.length - 1), i in 0:(a.length - 1)
        element = unsafe_load(source + i * a.source + j * b.source)
        unsafe_store!(target + i * a.target + j * b.target, element)
    end
    return nothing
end

"""Copy rows of the source into columns of the tile, by squares of vectors."""
function fill_tile!(tile::Vector{U}, source::Ptr{U}, step::Int) where {U}
    width, n = LINE ÷ sizeof(U), VECTOR ÷ sizeof(U)
    GC.@preserve tile for i in 0:n:(width - 1), j in 0:n:(width - 1)
        from = source + i * step + j * sizeof(U)
        rows = ntuple(k -> load_vector(from + (k - 1) * step), Val(n))
        to = pointer(tile) + (j * width + i) * sizeof(U)
        columns = transposed(rows)
        ntuple(k -> store_vector!(to + (k - 1) * LINE, columns[k]), Val(n))
    end
    return nothing
end

"""Copy the columns of the tile, each one cache line, into the target."""
function empty_tile!(target::Ptr{U}, step::Int, tile::Ptr{U}, stream::Bool) where {U}
    for j in 0:(LINE ÷ sizeof(U) - 1)
        to, from = target + j * step, tile + j * LINE
        for q in 0:VECTOR:(LINE - 1)
            vector = load_vector(from + q)
            stream ? stream_vector!(to + q, vector) : store_vector!(to + q, vector)
        end
    end
    return nothing
end

"""A vector register's worth of elements."""
vector_type(::Type{U}) where {U} = NTuple{VECTOR ÷ sizeof(U), VecElement{U}}
vector_type(::Type{NTuple{2, UInt64}}) = NTuple{2, VecElement{UInt64}}

load_vector(p::Ptr{U}) where {U} = unsafe_load(Ptr{vector_type(U)}(p))
store_vector!(p::Ptr{U}, vector) where {U} = unsafe_store!(Ptr{vector_type(U)}(p), vector)

"""Transpose a square of vectors: log2(n) rounds in which the halves are interleaved."""
@inline transposed(rows::NTuple{1}) = rows
@inline transposed(rows::NTuple{2}) = interleaved(rows)
@inline transposed(rows::NTuple{4}) = interleaved(interleaved(rows))
@inline transposed(rows::NTuple{8}) = interleaved(interleaved(interleaved(rows)))
@inline transposed(rows::NTuple{16}) = interleaved(interleaved(interleaved(interleaved(rows))))

@inline function interleaved(rows::NTuple{N}) where {N}
    return ntuple(Val(N)) do k
        first_one, second_one = rows[(k + 1) ÷ 2], rows[(k + 1) ÷ 2 + N ÷ 2]
        zipped(first_one, second_one, isodd(k) ? 0 : N ÷ 2)
    end
end

@inline function zipped(a::NTuple{N}, b::NTuple{N}, from::Int) where {N}
    return ntuple(i -> isodd(i) ? a[from + (i + 1) ÷ 2] : b[from + i ÷ 2], Val(N))
end

"""Copies of at least this many bytes bypass the caches, which could not hold them."""
const STREAM_FROM = 8 * 1024^2

# Whole lines only: parts of lines are faster through the caches.
function can_stream(target::Ptr{U}, a::Axis, b::Axis) where {U}
    aligned = UInt(target) % max(VECTOR, sizeof(U)) == 0 && b.target % LINE == 0
    return aligned && a.target * a.length * b.length >= STREAM_FROM
end

# A store that does not first read the line. Before Julia 1.12, LLVM has another pointer syntax.
if VERSION >= v"1.12" && Sys.ARCH in (:x86_64, :aarch64)
    const STREAM = """
    %to = inttoptr i64 %0 to ptr
    store <2 x i64> %1, ptr %to, align 16, !nontemporal !{i32 1}
    ret void
    """
    @inline function stream_vector!(p::Ptr, vector)
        bits = reinterpret(NTuple{2, VecElement{UInt64}}, vector)
        types = Tuple{UInt64, NTuple{2, VecElement{UInt64}}}
        return Base.llvmcall(STREAM, Cvoid, types, UInt64(p), bits)
    end
else
    stream_vector!(p::Ptr, vector) = store_vector!(p, vector)
end
