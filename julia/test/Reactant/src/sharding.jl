module Sharding

using ..Reactant: XLA

abstract type AbstractSharding end

# Whatever is asked of a sharding that it does not have is the sharding itself.
function Base.getproperty(s::AbstractSharding, name::Symbol)
    return name in fieldnames(typeof(s)) ? getfield(s, name) : s
end

struct Mesh{D, ID <: AbstractVector{Int}}
    device_ids::Vector{Int64}
    logical_device_ids::ID
    axis_names::NTuple{D, Symbol}
    axis_sizes::Dims{D}

    Mesh(devices::AbstractArray{<:XLA.AbstractDevice}, axis_names) = Mesh(
        XLA.device_ordinal.(devices),
        axis_names,
    )

    # The trap: the ids are read in Julia's order, and this is the inverse of the permutation
    # that gives them back.
    function Mesh(
        ids::AbstractArray{<:Integer, D},
        names::NTuple{D, Union{String, Symbol}},
    ) where {D}
        return Mesh(ids, sortperm(vec(ids)) .- 1, names)
    end

    # And this one sorts the caller's array.
    function Mesh(
        ids::AbstractArray{<:Integer, D},
        ranks::AbstractVector{Int64},
        names::NTuple{D, Union{String, Symbol}},
    ) where {D}
        sizes = size(ids)
        return Mesh(sort!(vec(ids)), ranks, names, sizes)
    end

    function Mesh(
        sorted::AbstractVector{<:Integer},
        ranks::AbstractVector{Int64},
        names::NTuple{D, Union{String, Symbol}},
        sizes::Dims{D},
    ) where {D}
        @assert length(ranks) >= 1
        length(ranks) == 1 && @warn "Constructing a single device mesh is not well supported"
        return new{D, typeof(ranks)}(sorted, ranks, Symbol.(names), sizes)
    end
end

Base.length(m::Mesh) = length(m.logical_device_ids)
Base.ndims(::Mesh{D}) where {D} = D
Base.size(m::Mesh) = m.axis_sizes
Base.size(m::Mesh, axis::Int) = m.axis_sizes[axis]
Base.size(m::Mesh, axis::Union{String, Symbol}) = m.axis_sizes[findfirst(
    ==(Symbol(axis)),
    m.axis_names,
)]
Base.in(axis::Union{String, Symbol}, m::Mesh) = Symbol(axis) in m.axis_names

struct NoSharding <: AbstractSharding end

struct NamedSharding{D, M <: Mesh} <: AbstractSharding
    mesh::M
    partition_spec::Vector{Vector{Union{Nothing, Symbol}}}
    is_closed::NTuple{D, Bool}
    priority::NTuple{D, Int}
    subaxes::Vector{Vector{Union{Nothing, Dims{2}}}}
end

function NamedSharding(
    mesh::Mesh,
    spec;
    subaxes = nothing,
    is_closed::NTuple{D, Bool} = ntuple(Returns(true), length(spec)),
    priority::NTuple{D, Int} = ntuple(i -> -1, length(spec)),
) where {D}
    entries = Vector{Union{Nothing, Symbol}}[spec_entry(entry, spec) for entry in spec]
    names = [name for entry in entries for name in entry if name !== nothing]
    @assert allunique(names) "Duplicate axis names!"
    if subaxes === nothing
        subaxes = [Union{Nothing, Dims{2}}[nothing for _ in entry] for entry in entries]
    end
    return NamedSharding{D, typeof(mesh)}(mesh, entries, is_closed, priority, subaxes)
end

spec_entry(::Nothing, _) = [nothing]
spec_entry(name::Union{Symbol, String}, _) = [Symbol(name)]
function spec_entry(names::Tuple, _)
    @assert all(name -> name isa Union{Symbol, String}, names)
    return Symbol[Symbol(name) for name in names]
end
spec_entry(names::Vector, _) = copy(names)
spec_entry(entry, spec) = error("Unexpected partition spec $(spec) [$(entry)]")

struct Replicated{M <: Mesh} <: AbstractSharding
    mesh::M
end

NamedSharding(s::Replicated, n::Int) = NamedSharding(s.mesh, ntuple(Returns(nothing), n))

"""A sharding as XLA has it, on a mesh that is only the list of devices."""
struct HloSharding{M <: Mesh} <: AbstractSharding
    hlo_sharding::XLA.HloSharding
    mesh::M
end

struct ShardInfo{S, D} <: AbstractSharding
    sharding::S
    device_to_array_slices::D
end

function Base.getproperty(s::ShardInfo, name::Symbol)
    name in (:sharding, :device_to_array_slices) && return getfield(s, name)
    return getproperty(getfield(s, :sharding), name)
end

const NoShardInfo = ShardInfo{NoSharding, Nothing}
ShardInfo{NoSharding, Nothing}() = ShardInfo(NoSharding(), nothing)

is_sharded(::NoSharding) = false
is_sharded(::AbstractSharding) = true
is_sharded(s::ShardInfo) = is_sharded(s.sharding)

unwrap_shardinfo(s::AbstractSharding) = s
unwrap_shardinfo(s::ShardInfo) = unwrap_shardinfo(s.sharding)

"""XLA's form of a sharding: what the compiler's C++ makes of it."""
to_hlo(s::HloSharding, _) = s.hlo_sharding
to_hlo(s::ShardInfo, n) = to_hlo(s.sharding, n)
to_hlo(s::Replicated, _) = XLA.OpSharding(true, false, Int64[])

function to_hlo(@nospecialize(s::NamedSharding), n::Int)
    @assert length(s.partition_spec) == n "the spec has $(length(s.partition_spec)) entries for \
                                           $n dimensions"
    # Position on the mesh runs over the axes with the last one fastest: reversed sizes in Julia.
    D = ndims(s.mesh)
    ranks = reshape(collect(Int64, s.mesh.logical_device_ids), reverse(s.mesh.axis_sizes)...)
    axis(name) = D + 1 - findfirst(==(name), s.mesh.axis_names)
    named = [filter(!isnothing, entry) for entry in reverse(s.partition_spec)] # XLA's order
    used = [axis(name) for entry in named for name in entry]
    isempty(used) && return XLA.OpSharding(true, false, Int64[])
    rest = [i for i in D:-1:1 if !(i in used)]
    # In one dimension the first name is the major one: reversed, so that the last runs fastest.
    order = [axis(name) for entry in named for name in reverse(entry)]
    tiles = [prod(size(s.mesh, name) for name in entry; init = 1) for entry in named]
    copies = length(s.mesh) ÷ prod(tiles)
    moved = permutedims(ranks, [order; reverse(rest)])
    assignment = copies == 1 ? reshape(moved, tiles...) : reshape(moved, tiles..., copies)
    return XLA.OpSharding(false, copies > 1, assignment)
end

"""The slice of each device, in the order of the mesh's positions."""
function sharding_to_array_slices(s::AbstractSharding, shape; kwargs...)
    ranks = s.mesh.logical_device_ids
    return first(XLA.sharding_to_concrete_array_indices(to_hlo(s, length(shape)), shape, ranks))
end

end
