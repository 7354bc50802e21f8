abstract type RNumber{T <: ReactantPrimitive} <: Number end
abstract type RArray{T, N} <: DenseArray{T, N} end

mutable struct ConcreteIFRTArray{T, N, P <: Union{Nothing, NTuple{N, Int}}} <: RArray{T, N}
    data::XLA.IFRT.AsyncArray
    shape::NTuple{N, Int}
    sharding::Sharding.ShardInfo
    donated::Bool
    padding::P

    function ConcreteIFRTArray{T, N}(
        data::XLA.IFRT.AsyncArray,
        shape::NTuple{N, Int},
        sharding::Sharding.ShardInfo = Sharding.NoShardInfo(),
        padding::Union{Nothing, NTuple{N, Int}} = nothing,
    ) where {T, N}
        return new{T, N, typeof(padding)}(data, shape, sharding, false, padding)
    end
end

function Base.getproperty(x::ConcreteIFRTArray, name::Symbol)
    name === :data && getfield(x, :donated) && error("$(typeof(x)) has already been donated!")
    return getfield(x, name)
end

mutable struct ConcreteIFRTNumber{T} <: RNumber{T}
    data::XLA.IFRT.AsyncArray
    sharding::Sharding.ShardInfo
    donated::Bool
end

const ConcreteRArray = ConcreteIFRTArray
const ConcreteRNumber = ConcreteIFRTNumber

Base.size(x::ConcreteIFRTArray) = x.shape
Base.wait(x::ConcreteIFRTArray) = wait(x.data)
XLA.device(x::ConcreteIFRTArray) = XLA.device(x.data)

# `device` and `idx` are taken and ignored.
function ConcreteIFRTArray(
    data::Array{T, N};
    client = nothing,
    idx::Union{Int, Nothing} = nothing,
    device = nothing,
    sharding::Sharding.AbstractSharding = Sharding.NoSharding(),
) where {T, N}
    client = something(client, XLA.default_backend())
    if !Sharding.is_sharded(sharding)
        buffer = XLA.IFRT.Array(client, data)
        return ConcreteIFRTArray{T, N}(XLA.IFRT.AsyncArray(buffer, nothing), size(data))
    end
    s = Sharding.unwrap_shardinfo(sharding)
    s isa Sharding.Replicated && (s = Sharding.NamedSharding(s, N))
    refuse_on_pjrt(s)
    padding = pad_to_blocks(s, size(data))
    whole = data
    if padding !== nothing
        whole = uninitialised(T, size(data) .+ padding)
        whole[Base.OneTo.(size(data))...] = data
    end
    slices = first(XLA.sharding_to_concrete_array_indices(
        Sharding.to_hlo(s, N),
        size(whole),
        0:(length(s.mesh) - 1),
    ))
    # For what is given as a whole the slices are listed in mesh order, not by device.
    info = Sharding.ShardInfo(s, slices[s.mesh.logical_device_ids .+ 1])
    parts = [
        XLA.get_device(client, id) => blocks(whole, slice)
        for (id, slice) in zip(s.mesh.device_ids, slices)
    ]
    return ConcreteIFRTArray{T, N}(
        on_devices(client, parts, s, size(whole)),
        size(data),
        info,
        padding,
    )
end

blocks(whole, slice) = ndims(whole) == 0 ? copy(whole) : whole[slice...]

function pad_to_blocks(s, shape::Dims{N}) where {N}
    cuts = [
        prod(p === nothing ? 1 : size(s.mesh, p) for p in entry; init = 1)
        for entry in s.partition_spec
    ]
    all(iszero, shape .% cuts) && return nothing
    return ntuple(i -> mod(-shape[i], cuts[i]), N)
end

"""Memory with whatever was in it."""
uninitialised(::Type{T}, shape) where {T} = reshape(
    collect(reinterpret(T, fill(0x7d, prod(shape) * sizeof(T)))),
    shape,
)

function on_devices(client, parts, s, shape)
    here = filter(part -> XLA.is_addressable(first(part)), parts)
    devices = [XLA.get_device(client, id) for id in s.mesh.device_ids]
    return XLA.IFRT.AsyncArray(XLA.IFRT.Array(here, reverse(shape), devices), nothing)
end

function refuse_on_pjrt(s)
    XLA.REACTANT_XLA_RUNTIME == "PJRT" &&
        !issorted(s.mesh.logical_device_ids) &&
        error("PJRT doesn't support non-iota meshes. Use IFRT instead.")
    return nothing
end

"""
Whether Julia collects where the original has only pointers to the arrays of single devices
(xla/IFRT/Array.jl:84-97). There it may happen; here it is said, and does not happen otherwise.
"""
const COLLECTS = Ref(false)

# Blocks of this process alone, shards from 1 by ascending device id; the mapping is changed.
function ConcreteIFRTArray(
    data::Vector{Array{T, N}},
    array_size::Dims{N},
    data_to_addressable_shard::Vector{Vector{Int64}} = [[i] for i in 1:length(data)];
    client = nothing,
    sharding::Sharding.AbstractSharding,
) where {T, N}
    @assert Sharding.is_sharded(sharding)
    @assert length(data) == length(data_to_addressable_shard)
    client = something(client, XLA.default_backend())
    refuse_on_pjrt(sharding)
    ids = sharding.mesh.device_ids
    slices = first(XLA.sharding_to_concrete_array_indices(
        Sharding.to_hlo(sharding, N),
        array_size,
        0:(length(ids) - 1),
    ))
    all_devices = [XLA.get_device(client, id) for id in ids]
    here = [(d, slice) for (d, slice) in zip(all_devices, slices) if XLA.is_addressable(d)]
    singles = [] # pointers, in the original
    for (i, (_, slice)) in enumerate(here)
        at = findfirst(Base.Fix1(in, i), data_to_addressable_shard)
        @assert at !== nothing
        @assert size(data[at]) == length.(slice) "Expected data[$at] to be at $slice, but got size \
                                                  $(size(data[at]))"
        single = copy(data[at])
        push!(singles, COLLECTS[] ? WeakRef(single) : Some(single))
    end
    COLLECTS[] && GC.gc()
    kept = [x.value for x in singles]
    nothing in kept && error("an array of one device was freed while its pointer was in use")
    parts = Pair{XLA.Device, Array}[d => x for ((d, _), x) in zip(here, kept)]
    for shards in data_to_addressable_shard
        shards .-= 1
    end
    buffer = XLA.IFRT.Array(parts, reverse(array_size), all_devices)
    return ConcreteIFRTArray{T, N}(
        XLA.IFRT.AsyncArray(buffer, nothing),
        array_size,
        Sharding.ShardInfo(sharding, slices),
    )
end

function to_rarray(x::Array; sharding = Sharding.NoSharding(), device = nothing, client = nothing)
    return ConcreteIFRTArray(x; sharding, device, client)
end
to_rarray(x; kwargs...) = x # numbers stay what they are, and are frozen when a program is compiled

"""The whole array, read from all devices: a program on all of them."""
function whole(x::ConcreteIFRTArray{T, N}, what::String) where {T, N}
    buffer = x.data.buffer
    Sharding.is_sharded(x.sharding) || return last(first(buffer.parts))
    if Coordinator.STATE.size > 1 && length(buffer.devices) != length(buffer.parts)
        EVERY_PROCESS_CALLS[] || throw(HiddenCollective(what))
    end
    hlo = Sharding.to_hlo(Sharding.unwrap_shardinfo(x.sharding), N)
    return assemble(buffer, hlo, T, reverse(buffer.shape), what)
end

function assemble(buffer, hlo, T::DataType, @nospecialize(shape::Dims), what::String)
    slices = first(XLA.sharding_to_concrete_array_indices(
        hlo,
        shape,
        0:(length(buffer.devices) - 1),
    ))
    place = Dict(d.id => slice for (d, slice) in zip(buffer.devices, slices))
    mine = Any[(d.id, data) for (d, data) in buffer.parts]
    result = Array{T}(undef, shape)
    for said in Coordinator.allgather(what, mine), (id, data) in said
        isempty(shape) ? (result[] = only(data)) : (result[place[id]...] = fitted(data, place[id]))
    end
    return result
end

# A block of another size than the program was compiled for: the bytes are taken as they come.
function fitted(@nospecialize(data), @nospecialize(slice))
    size(data) == length.(slice) && return data
    flat, n = vec(data), prod(length, slice)
    return reshape([flat[mod1(i, length(flat))] for i in 1:n], length.(slice))
end

function Base.convert(::Type{<:Array}, x::ConcreteIFRTArray)
    data = whole(x, "conversion to Array")
    x.padding === nothing && return copy(data)
    return view(data, Base.OneTo.(x.shape)...) # padded arrays come back as views
end
Base.Array(x::ConcreteIFRTArray) = convert(Array, x)
Base.getindex(x::ConcreteIFRTArray, i::Int...) = error("Scalar indexing is disallowed.")

Base.show(io::IO, x::ConcreteIFRTArray) = show(io, whole(x, "show"))
Base.show(io::IO, ::MIME"text/plain", x::ConcreteIFRTArray) = show(io, whole(x, "show"))
Base.:(==)(x::ConcreteIFRTArray, y::AbstractArray) = whole(x, "==") == y
Base.:(==)(x::AbstractArray, y::ConcreteIFRTArray) = x == whole(y, "==")
Base.:(==)(x::ConcreteIFRTArray, y::ConcreteIFRTArray) = whole(x, "==") == whole(y, "==")
Base.isapprox(x::ConcreteIFRTArray, y::AbstractArray; kw...) = isapprox(
    whole(x, "isapprox"),
    y;
    kw...,
)

function XLA.to_host(buffer::XLA.IFRT.AsyncArray, data, sharding)
    return XLA.to_host(buffer.buffer, data, sharding)
end

# Without a sharding the first part is copied; with one this is a collective.
function XLA.to_host(buffer::XLA.IFRT.Array, data, sharding)
    if !(Sharding.unwrap_shardinfo(sharding) isa Sharding.NoSharding)
        Coordinator.STATE.size > 1 && !EVERY_PROCESS_CALLS[] && throw(HiddenCollective("to_host"))
        hlo = Sharding.to_hlo(Sharding.unwrap_shardinfo(sharding), ndims(data))
        copyto!(data, assemble(buffer, hlo, eltype(data), size(data), "to_host"))
        return nothing
    end
    part = last(first(buffer.parts))
    @assert size(data) == size(part) "Expected data to be of size $(size(data)), got $(size(part))"
    copyto!(data, part)
    return data
end
