"""
An array on devices, as Python holds it. `array` is Reactant's own; `blocks` is where Reactant
says that it lies, by ascending device id. Not an AbstractArray on purpose: showing, comparing or
converting one of Reactant's is a collective operation (xla/IFRT/Array.jl:179-234).
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

Place an array of which this process has these blocks (NumPy arrays); `holders[i]` are the ids of
the devices here that hold `blocks[i]`. Nobody needs the whole array. Not a tuple of blocks: that
would stay in Python as long as Julia's collector leaves it.
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
    # Shards count from 1 in ascending order of device ids; made anew for each call, because
    # Reactant subtracts one from what it is given (Types.jl:450-452).
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

# Reactant keeps only the pointers of the single arrays while it puts them together
# (xla/IFRT/Array.jl:84-97): a collection in between would free them.
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

# `device=` and `idx=` of Reactant's own constructors are ignored (Types.jl:389-393), so the
# buffer is made on its device and wrapped.
function on_one_device(data::Array{T, N}, id) where {T, N}
    client = XLA.default_backend()
    buffer = XLA.IFRT.Array(client, data, XLA.get_device(client, id))
    return Reactant.ConcreteIFRTArray{T, N}(XLA.IFRT.AsyncArray(buffer, nothing), size(data))
end

# Reactant cannot cut a dimension without elements (xla/Sharding.jl:230): such an array lies whole
# on every device, and has the blocks that its sharding says all the same.
function empty_array(T::DataType, @nospecialize(dims::Dims), s::ArraySharding)
    data = [allocate(T, dims)]
    if s.mesh.reactant === nothing
        array = on_one_device(only(data), only(s.mesh.ids))
    else
        whole = ArraySharding(s.mesh, [String[] for _ in dims])
        shards = [Int64.(eachindex(filter(is_local, s.mesh.ids)))]
        array = assembled(data, dims, shards, to_reactant(whole))
    end
    return Held(array, T, dims, s, blocks(s, dims), nothing)
end

"""Where Reactant says that an array lies; both constructors give ascending device ids."""
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

"""Bytes placed or computed since the last collection, and how many are let pass."""
const PLACED = Ref(0)
const COLLECT_AFTER = 1 << 30

"""
Julia's collector does not see device memory, which goes back only when it finds the array that
holds it: it is asked once for each GiB.
"""
function account(bytes::Integer)
    PLACED[] += bytes
    if PLACED[] > COLLECT_AFTER
        PLACED[] = 0
        GC.gc(true)
    end
    return nothing
end
