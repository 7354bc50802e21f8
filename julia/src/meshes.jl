"""
A mesh in Python's terms: device ids in C order over named axes. `reactant` is Reactant's mesh, and
nothing for one device, for which Reactant takes no mesh (Sharding.jl:62-69).
"""
struct DeviceMesh
    ids::Vector{Int64}
    sizes::Vector{Int}
    names::Vector{String}
    reactant::Union{Nothing, Reactant.Sharding.Mesh}
end

"""
    mesh(ids, sizes, names) -> DeviceMesh

`ids` are Reactant's device ids in C order over axes of these sizes, the last running fastest.
"""
function mesh(@nospecialize(ids::Tuple), @nospecialize(sizes::Tuple), @nospecialize(names::Tuple))
    devices, axes, axis_names = Int64[items(ids)...], Int[items(sizes)...], String[items(names)...]
    if length(axes) != length(names) || prod(axes) != length(devices) || isempty(devices)
        throw(Wrong(
            "ShardingError",
            "a mesh needs one name per axis and one device per place, got sizes $sizes, " *
                "names $names and $(length(ids)) device ids",
        ))
    end
    allunique(devices) || throw(Wrong("ShardingError", "a mesh has each device once, got $ids"))
    if !allunique(axis_names)
        throw(Wrong("ShardingError", "a mesh has each axis name once, got $names"))
    end
    length(devices) == 1 && return DeviceMesh(devices, axes, axis_names, nothing)
    # The constructor with ids alone reads them in Julia's order, takes the inverse permutation
    # (Sharding.jl:40-48), and sorts the caller's array in place (:56). This one takes what XLA
    # reads: place k, last axis fastest, holds sorted[ranks[k] + 1].
    sorted = sort(devices)
    ranks = Int64[searchsortedfirst(sorted, id) - 1 for id in devices]
    reactant = Reactant.Sharding.Mesh(sorted, ranks, Tuple(Symbol.(axis_names)), Tuple(axes))
    return DeviceMesh(devices, axes, axis_names, reactant)
end

Base.:(==)(a::DeviceMesh, b::DeviceMesh) = a === b ||
    (a.ids == b.ids && a.sizes == b.sizes && a.names == b.names)

function Base.show(io::IO, m::DeviceMesh)
    axes = join(("$name=$n" for (name, n) in zip(m.names, m.sizes)), ", ")
    return print(io, "DeviceMesh($axes over devices $(m.ids))")
end

"""How an array is cut over a mesh: the axes of each dimension, major to minor."""
struct ArraySharding
    mesh::DeviceMesh
    spec::Vector{Vector{String}}
end

"""
    sharding(mesh, spec) -> ArraySharding

`spec` has an entry per dimension: nothing, an axis name, or a tuple of names, major to minor.
Dimensions beyond it are not cut.
"""
function sharding(m::DeviceMesh, @nospecialize(spec::Tuple))
    entries = Vector{String}[names_of(m, entry) for entry in items(spec)]
    used = reduce(vcat, entries; init = String[])
    twice = findfirst(name -> count(==(name), used) > 1, used)
    twice === nothing ||
        throw(Wrong(
            "ShardingError",
            "partition spec $spec uses axis '$(used[twice])' twice; an axis can cut one " *
                "dimension only",
        ))
    return ArraySharding(m, entries)
end

sharding(::DeviceMesh, spec) = throw(unfit_spec(spec))

names_of(::DeviceMesh, ::Nothing) = String[]
names_of(m::DeviceMesh, name::String) = names_of(m, (name,))

function names_of(m::DeviceMesh, @nospecialize(names::Tuple))
    for name in items(names)
        name isa String || throw(unfit_spec(names))
        name in m.names && continue
        throw(Wrong(
            "ShardingError",
            "partition spec names axis '$name', but the mesh has axes $(m.names)",
        ))
    end
    return String[items(names)...]
end

names_of(::DeviceMesh, entry) = throw(unfit_spec(entry))

# A Python list arrives as a PyList, for which Reactant's error is only "Unexpected partition spec"
# (Sharding.jl:275).
function unfit_spec(entry)
    return Wrong(
        "ShardingError",
        "a partition spec is a tuple of None, axis names and tuples of names, got a " *
            "$(nameof(typeof(entry))): $entry; write tuples, not lists",
    )
end

Base.:(==)(a::ArraySharding, b::ArraySharding) = a === b || (a.mesh == b.mesh && a.spec == b.spec)

Base.show(io::IO, s::ArraySharding) = print(io, "ArraySharding($(s.mesh), $(s.spec))")

"""The same sharding with exactly `ndim` entries, as Reactant requires."""
function padded(s::ArraySharding, ndim::Int)
    length(s.spec) == ndim && return s
    if length(s.spec) > ndim
        throw(Wrong(
            "ShardingError",
            "the partition spec has $(length(s.spec)) entries, the array $ndim dimensions",
        ))
    end
    return ArraySharding(s.mesh, [s.spec; [String[] for _ in 1:(ndim - length(s.spec))]])
end

"""Reactant's sharding for one of ours that has an entry for each dimension."""
function to_reactant(s::ArraySharding)
    s.mesh.reactant === nothing && return Reactant.Sharding.NoSharding()
    # Symbols and tuples: Reactant refuses anything else or, worse, stores it unchanged
    # (Sharding.jl:257-276). A vector, so that nothing is compiled for each spec.
    spec = Any[isempty(names) ? nothing : Tuple(Symbol.(names)) for names in s.spec]
    return Reactant.Sharding.NamedSharding(s.mesh.reactant, spec)
end

"""
The sharding with which Reactant holds an array. It cannot cut a dimension of length 0
(xla/Sharding.jl:245), so each device holds the whole of an array without elements; its blocks are
nevertheless those of its own sharding.
"""
function held_as(s::ArraySharding, @nospecialize(dims::Dims))
    any(iszero, dims) && return ArraySharding(s.mesh, [String[] for _ in dims])
    return padded(s, length(dims))
end

"""A device and the block of an array that it holds, 0-based and half open."""
const Block = Tuple{Int64, Vector{Int}, Vector{Int}}

"""
    blocks(s, shape) -> Vector{Block}

The block of an array that each device holds, by ascending device id; the placement rule itself,
which does not ask Reactant.
"""
function blocks(s::ArraySharding, @nospecialize(dims::Dims))
    shape = Int[dims...]
    s = padded(s, length(shape))
    cuts = cuts_of(s)
    for (dimension, (n, cut)) in enumerate(zip(shape, cuts))
        n % cut == 0 && continue
        throw(Wrong(
            "ShardingError",
            "dimension $(dimension - 1) of shape $dims is not divisible by $cut, the size " *
                "of its mesh axes $(s.spec[dimension]) (blocks must be equal: nothing is padded)",
        ))
    end
    found = Block[]
    for (k, id) in enumerate(s.mesh.ids)
        at = coordinates(s.mesh, k - 1)
        starts = Int[]
        for (n, cut, names) in zip(shape, cuts, s.spec)
            number = foldl((i, name) -> i * axis_size(s.mesh, name) + at[name], names; init = 0)
            push!(starts, number * (n ÷ cut))
        end
        push!(found, (id, starts, starts .+ shape .÷ cuts))
    end
    return sort!(found; by = first)
end

axis_size(m::DeviceMesh, name::String) = m.sizes[findfirst(==(name), m.names)]

"""The number of blocks along each dimension that the spec names."""
cuts_of(s::ArraySharding) = Int[
    prod(name -> axis_size(s.mesh, name), names; init = 1)
    for names in s.spec
]

"""Whether it cuts an array of this size into equal blocks."""
function fits(s::ArraySharding, @nospecialize(dims::Dims))
    length(s.spec) <= length(dims) || return false
    return all(zip(Int[dims...], cuts_of(s))) do (n, cut)
        n % cut == 0
    end
end

"""The coordinates of place `k` (from 0, last axis fastest) on each axis."""
function coordinates(m::DeviceMesh, k::Int)
    at = Dict{String, Int}()
    for (name, n) in Iterators.reverse(zip(m.names, m.sizes))
        k, at[name] = divrem(k, n)
    end
    return at
end
