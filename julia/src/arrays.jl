"""
An array on devices, as Python holds it. `array` is Reactant's array; `blocks` is its placement
according to Reactant, by ascending device id. It is deliberately not an AbstractArray: showing,
comparing or converting one of Reactant's is collective (xla/IFRT/Array.jl:179-234).
"""
mutable struct Held
    const array::Any
    const type::DataType
    const shape::Dims
    const sharding::Union{Nothing, ArraySharding}
    const blocks::Vector{Block}
    parts::Union{Nothing, AbstractVector}
end

function Base.show(io::IO, x::Held)
    return print(io, "Held($(element_name(x.type))$(collect(x.shape)) on $(x.sharding))")
end

"""
    dtype_of(x) -> NumPy's name of its element type
"""
dtype_of(x::Held) = element_name(x.type)

"""
    shape_of(x) -> the global shape
"""
shape_of(x::Held) = x.shape

"""
    from_blocks(dtype, shape, sharding, holders, blocks...) -> Held

Place an array, given this process's blocks (NumPy arrays); `holders[i]` are the ids of this
process's devices that hold `blocks[i]`. No process needs the whole array. The blocks are not a
tuple, because Julia's collector would keep that in Python.
"""
function from_blocks(
    dtype::String,
    @nospecialize(shape::Tuple),
    s::ArraySharding,
    @nospecialize(holders::Tuple),
    @nospecialize(blocks_here::AbstractArray...),
)
    given, here = Any[blocks_here...], Vector{Int64}[items(ids) for ids in items(holders)]
    return lent(place_blocks, (element_type(dtype), Dims(items(shape)), s, given, here), given)
end

function place_blocks(
    T::DataType,
    @nospecialize(dims::Dims),
    s::ArraySharding,
    given::Vector{Any},
    here::Vector{Vector{Int64}},
)
    s = padded(s, length(dims))
    local_ids = filter(is_local, sort(s.mesh.ids))
    check_holders(local_ids, blocks(s, dims), given, here)
    if prod(dims) == 0
        return empty_array(T, dims, s)
    end
    array = without_python(transfer, T, dims, s, local_ids, given, here)
    return Held(array, T, dims, s, placed(array, s, dims), nothing)
end

function transfer(
    T::DataType,
    @nospecialize(dims::Dims),
    s::ArraySharding,
    local_ids::Vector{Int64},
    given::Vector{Any},
    here::Vector{Vector{Int64}},
)
    data = Vector{Array{T, length(dims)}}(undef, length(given))
    for (i, block) in enumerate(given)
        data[i] = to_julia(block, T)
        account(sizeof(data[i]))
    end
    s.mesh.reactant === nothing && return on_one_device(only(data), only(s.mesh.ids))
    # Shards count from 1 in ascending order of device ids. Each call makes a new vector, because
    # Reactant subtracts one from the one that it gets (Types.jl:450-452).
    shards = Vector{Int64}[searchsortedfirst.((local_ids,), ids) for ids in here]
    return assembled(data, dims, shards, to_reactant(s))
end

function check_holders(
    local_ids::Vector{Int64},
    wanted::Vector{Block},
    given::Vector{Any},
    here::Vector{Vector{Int64}},
)
    ids = sort!(reduce(vcat, here; init = Int64[]))
    if ids != local_ids || length(given) != length(here)
        throw(Wrong(
            "InvalidArgumentError",
            "each of this process's devices $local_ids needs one block, got blocks for $ids",
        ))
    end
    shape_of_id = Dict{Int64, Vector{Int}}(id => stops .- starts for (id, starts, stops) in wanted)
    for (block, ids) in zip(given, here)
        shape = Int[size(block)...]
        for id in ids
            shape == shape_of_id[id] && continue
            throw(Wrong(
                "InvalidArgumentError",
                "device $id needs a block of shape $(Tuple(shape_of_id[id])), got $(Tuple(shape))",
            ))
        end
    end
    return nothing
end

# Reactant keeps only the pointers of the single arrays while it assembles them
# (xla/IFRT/Array.jl:84-97), so a garbage collection in between would free them.
function assembled(
    @nospecialize(data::Vector),
    @nospecialize(dims::Dims),
    shards::Vector{Vector{Int64}},
    @nospecialize(s),
)
    was = GC.enable(false)
    try
        return Reactant.ConcreteIFRTArray(data, dims, shards; sharding = s)
    finally
        GC.enable(was)
    end
end

# Reactant's constructors ignore `device=` and `idx=` (Types.jl:389-393), so this makes the
# buffer on its device and wraps it.
function on_one_device(data::Array{T, N}, id) where {T, N}
    client = XLA.default_backend()
    buffer = XLA.IFRT.Array(client, data, XLA.get_device(client, id))
    return Reactant.ConcreteIFRTArray{T, N}(XLA.IFRT.AsyncArray(buffer, nothing), size(data))
end

function empty_array(T::DataType, @nospecialize(dims::Dims), s::ArraySharding)
    data = [allocate(T, dims)]
    if s.mesh.reactant === nothing
        array = on_one_device(only(data), only(s.mesh.ids))
    else
        shards = [Int64.(eachindex(filter(is_local, s.mesh.ids)))]
        array = assembled(data, dims, shards, to_reactant(held_as(s, dims)))
    end
    return Held(array, T, dims, s, blocks(s, dims), nothing)
end

"""The placement of an array according to Reactant; both constructors give ascending device ids."""
function placed(@nospecialize(array), s::ArraySharding, @nospecialize(dims::Dims))
    ids = sort(s.mesh.ids)
    s.mesh.reactant === nothing && return Block[whole_block(only(ids), dims)]
    slices = array.sharding.device_to_array_slices
    return Block[block_of(id, slices[i]) for (i, id) in enumerate(ids)]
end

whole_block(id, @nospecialize(dims::Dims)) = (Int64(id), zeros(Int, length(dims)), Int[dims...])

function block_of(id, @nospecialize(slices::Tuple))
    ranges = items(slices)
    return (Int64(id), Int[first(r) - 1 for r in ranges], Int[last(r) for r in ranges])
end

"""Bytes placed or computed since the last collection, and the number that triggers the next."""
const PLACED = Ref(0)
const COLLECT_AFTER = 1 << 30

"""
Julia's collector does not see device memory, and frees it only with the array that holds it. So it
is called after each GiB.
"""
function account(bytes::Integer)
    PLACED[] += bytes
    if PLACED[] > COLLECT_AFTER
        PLACED[] = 0
        GC.gc(true)
    end
    return nothing
end
