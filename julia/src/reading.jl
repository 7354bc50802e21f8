# Read arrays on devices into NumPy's memory.

"""
    shards(x) -> [(device id, starts, stops), ...]

The blocks on this process's devices, by ascending device id. Never communicates.
"""
function shards(x::Held)
    return Any[(id, Tuple(a), Tuple(b)) for (id, a, b) in x.blocks if is_local(id)]
end

"""
    read_shard(x, i, out)

Write the block of `shards(x)[i]` (from 0) into NumPy memory. Never communicates: Reactant's
`Array(x)` and `to_host` of a sharded array would (xla/IFRT/Array.jl:179-234).
"""
function read_shard(x::Held, i::Integer, @nospecialize(out::AbstractArray))
    return lent(copy_shard, (x, i, out), Any[out])
end

function copy_shard(x::Held, i::Integer, @nospecialize(out::AbstractArray))
    id, starts, stops = filter(b -> is_local(b[1]), x.blocks)[i + 1]
    dims = Tuple(stops .- starts)
    check_out(out, x.type, dims)
    prod(dims) == 0 && return nothing
    return without_python(read_part, part_of(x, id), x.type, dims, out)
end

"""The array of one device."""
function part_of(x::Held, id)
    if x.parts === nothing
        # `true`: the addressable ones only.
        split = XLA.IFRT.disassemble_into_single_device_arrays
        x.parts = without_python(split, x.array.data, true)
    end
    for part in x.parts
        XLA.device_ordinal(XLA.device(part)) == id && return part
    end
    error("no device $id among the parts of $x; please report this")
end

function read_part(part, T::DataType, @nospecialize(dims::Dims), @nospecialize(out::AbstractArray))
    there = elements(out)
    if has_julia_order(there, sizeof(T))
        GC.@preserve out begin
            block = unsafe_wrap(Array, Ptr{T}(there.start), dims)
            XLA.to_host(part, block, Reactant.Sharding.NoSharding())
        end
    else
        block = allocate(T, dims)
        XLA.to_host(part, block, Reactant.Sharding.NoSharding())
        to_numpy!(out, block)
    end
    return nothing
end

"""
    gather(x, out)

Write the whole array into NumPy memory on every process. Collective.
"""
function gather(x::Held, @nospecialize(out::AbstractArray))
    return lent(copy_whole, (x, out), Any[out])
end

function copy_whole(x::Held, @nospecialize(out::AbstractArray))
    check_out(out, x.type, x.shape)
    prod(x.shape) == 0 && return nothing
    whole = is_whole(x) ? x : replicated(x)
    part = part_of(whole, first(shards(whole))[1])
    return without_python(read_part, part, whole.type, x.shape, out)
end

function is_whole(x::Held)
    shape = Int[x.shape...]
    return all(b -> all(iszero, b[2]) && b[3] == shape, x.blocks)
end

"""
    wait(x)

Wait until the blocks on this process's devices are computed.
"""
function wait(x::Held)
    without_python(Base.wait, x.array)
    return nothing
end
