module XLA

using Preferences: load_preference
using UUIDs: UUID

# Read once, when this package is precompiled: a preference set later changes nothing.
const REACTANT_XLA_RUNTIME = load_preference(
    UUID("3c362404-f566-11ee-1572-e11a4b42c853"),
    "xla_runtime",
    "PJRT",
)
REACTANT_XLA_RUNTIME in ("PJRT", "IFRT") ||
    error("Unsupported REACTANT_XLA_RUNTIME (set via `xla_runtime`): $REACTANT_XLA_RUNTIME")

abstract type AbstractDevice end

struct Device <: AbstractDevice
    id::Int64
    process::Int
    kind::String
    client::Any
end

Base.:(==)(a::Device, b::Device) = a.id == b.id
Base.hash(d::Device, h::UInt) = hash(d.id, h)
Base.string(d::Device) = "$(uppercase(platform_name(d.client))):$(d.id) $(d.kind)"
Base.show(io::IO, ::MIME"text/plain", d::Device) = print(io, "XLA.Device(\"", string(d), "\")")
Base.show(io::IO, d::Device) = print(io, "XLA.Device(\"", string(d), "\")")

device_ordinal(d::Device) = d.id
device_kind(d::Device) = d.kind
is_addressable(d::Device) = d.process == d.client.process
client(d::Device) = d.client

mutable struct Client
    const platform::String
    const process::Int
    devices::Vector{Device}
end

Base.show(io::IO, c::Client) = print(io, "XLA.Client(\"", c.platform, "\")")

platform_name(c::Client) = c.platform
devices(c::Client) = copy(c.devices)
addressable_devices(c::Client) = filter(is_addressable, c.devices)
num_devices(c::Client) = length(c.devices)
process_index(c::Client) = c.process
default_device(c::Client) = first(addressable_devices(c))

function get_device(c::Client, id)
    found = findfirst(d -> d.id == id, c.devices)
    found === nothing && error("No matching device found for device_id $id")
    return c.devices[found]
end

# How XLA writes a sharding: the array is cut into tiles (dimensions in XLA's order, the reverse
# of Julia's), and tile_assignment says which device, by rank among the sorted, has each.
struct OpSharding
    replicated::Bool
    replicate_on_last_tile_dim::Bool
    tile_assignment::Base.Array{Int64}
end

const HloSharding = OpSharding

Base.:(==)(a::OpSharding, b::OpSharding) = a.replicated == b.replicated &&
    (
        a.replicated ||
            (
                a.replicate_on_last_tile_dim == b.replicate_on_last_tile_dim &&
                    a.tile_assignment == b.tile_assignment
            )
    )

"""The slices of devices `ranks`, and whether they are not all equal."""
function sharding_to_concrete_array_indices(s::OpSharding, shape::Dims{N}, ranks) where {N}
    s.replicated && return [ntuple(i -> 1:shape[i], N) for _ in ranks], false
    sizes = size(s.tile_assignment)
    cuts = reverse(s.replicate_on_last_tile_dim ? sizes[1:(end - 1)] : sizes)
    @assert length(cuts) == N
    @assert all(>(0), shape) "Invalid dimension: $shape"
    # XLA rounds a size to the nearest multiple, half up.
    rounded = map((n, cut) -> n % cut == 0 ? n : (n + cut ÷ 2) ÷ cut * cut, shape, cuts)
    steps = map(÷, rounded, cuts)
    place = Dict(rank => at for (at, rank) in pairs(IndexCartesian(), s.tile_assignment))
    slices = map(ranks) do rank
        tile = reverse(Tuple(place[rank])[1:N])
        ntuple(N) do i
            cuts[i] == 1 && return 1:shape[i]
            return ((tile[i] - 1) * steps[i] + 1):min(tile[i] * steps[i], shape[i])
        end
    end
    return collect(slices), rounded != shape
end

function is_replicated end
is_replicated(s::OpSharding) = s.replicated

function device end
function sharding end
function to_host end
function get_output_shardings end
function get_hlo_modules end
function get_parameter_shardings end

module IFRT
    using ..XLA: XLA, Device, Client

    """A future that is always there."""
struct Future end

    """Blocks on the devices of this process; `shape` is XLA's, the reverse of Julia's."""
mutable struct Array
        parts::Vector{Pair{Device, Base.Array}}
        shape::Tuple
        devices::Vector{Device}
    end

    Base.size(a::Array) = a.shape
    Base.ndims(a::Array) = length(a.shape)
    Base.eltype(a::Array) = eltype(first(a.parts)[2])

    function Array(client::Client, data::Base.Array, device::Device = XLA.default_device(client))
        return Array([device => copy(data)], reverse(size(data)), [device])
    end

    mutable struct AsyncArray
        buffer::Array
        future::Union{Future, Nothing}
    end

    Base.wait(a::AsyncArray) = nothing
    Base.size(a::AsyncArray) = size(a.buffer)

    function XLA.device(a::Array)
        return length(a.devices) == 1 ? only(a.devices) : nothing
    end
    XLA.device(a::AsyncArray) = XLA.device(a.buffer)

    disassemble_into_single_device_arrays(
        a::AsyncArray,
        addressable::Bool,
    ) = disassemble_into_single_device_arrays(a.buffer, addressable)

    function disassemble_into_single_device_arrays(a::Array, ::Bool)
        return [Array([d => data], reverse(size(data)), [d]) for (d, data) in a.parts]
    end

end

end
