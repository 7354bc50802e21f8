"""
An array of which only the element type, the size and its name in a module's text are known.
Products, transposes and shardings of such arrays are written as StableHLO, and nothing else.
"""
struct Symbolic{T, N} <: AbstractArray{T, N}
    shape::Dims{N}
    name::String
end

struct NotWritten <: Exception end

Base.size(x::Symbolic) = x.shape
Base.copy(x::Symbolic) = x
Base.getindex(::Symbolic, ::Int...) = throw(NotWritten())
promote_to(::Type{TracedRArray}, x::Symbolic) = x

"""The module that is written: its operations, and the meshes that its shardings name."""
struct Writing
    lines::Vector{String}
    meshes::Vector{Any}
end

const WRITING = Ref{Union{Nothing, Writing}}(nothing)

"""Write an operation that gives an array of this type and size."""
function write_down(::Type{T}, shape::Dims{N}, operation::String) where {T, N}
    lines = WRITING[].lines
    name = "%$(length(lines))"
    push!(lines, "$name = $operation")
    return Symbolic{T, N}(shape, name)
end

tensor(T, shape) = "tensor<$(join((string(n, "x") for n in shape)))$(MLIR_NAMES[T])>"
tensor(x::Symbolic) = tensor(eltype(x), size(x))

# Within a module tensors have the sizes of Julia's arrays; at its ends they have them reversed.
turned(x::Symbolic{T, N}) where {T, N} = N < 2 ? x : permuted(x, ntuple(i -> N + 1 - i, N))

function permuted(x::Symbolic{T, N}, order) where {T, N}
    shape = ntuple(i -> size(x, order[i]), N)
    operands = "$(x.name), dims = [$(join(order .- 1, ", "))]"
    types = "($(tensor(x))) -> $(tensor(T, shape))"
    return write_down(T, shape, "stablehlo.transpose $operands : $types")
end

Base.transpose(x::Symbolic{T, 2}) where {T} = permuted(x, (2, 1))
Base.adjoint(x::Symbolic{T, 2}) where {T <: Real} = permuted(x, (2, 1))
Base.permutedims(x::Symbolic{T, 2}) where {T} = permuted(x, (2, 1))

function product(x::Symbolic{T}, y::Symbolic{T}) where {T}
    size(x, 2) == size(y, 1) || throw(DimensionMismatch("$(size(x)) times $(size(y))"))
    shape = (size(x, 1), size(y)[2:end]...)
    precision = "precision = [$(PRECISION[]), $(PRECISION[])]"
    operands = "$(x.name), $(y.name), contracting_dims = [1] x [0], $precision"
    types = "($(tensor(x)), $(tensor(y))) -> $(tensor(T, shape))"
    return write_down(T, shape, "stablehlo.dot_general $operands : $types")
end

Base.:*(x::Symbolic{T, 2}, y::Symbolic{T, 2}) where {T} = product(x, y)
Base.:*(x::Symbolic{T, 2}, y::Symbolic{T, 1}) where {T} = product(x, y)
for T in (BFloat16, Float16, F8E5M2, F8E4M3FN)
    # Matrices of these have products of their own.
    @eval Base.:*(x::Symbolic{$T, 2}, y::Symbolic{$T, 2}) = product(x, y)
    @eval Base.:*(x::Symbolic{$T, 2}, y::Symbolic{$T, 1}) = product(x, y)
end

function Ops.sharding_constraint(x::Symbolic{T, N}, s::Sharding.AbstractSharding) where {T, N}
    operation = "sdy.sharding_constraint $(x.name) $(shardy_text(s, false)) : $(tensor(x))"
    return write_down(T, size(x), operation)
end

"""Shardy's form of a sharding; its dimensions are reversed at the module's ends."""
function shardy_text(s, reversed::Bool)
    s isa Sharding.NamedSharding || throw(NotWritten())
    entry(names) = "{" * join(("\"$name\"" for name in names if name !== nothing), ", ") * "}"
    spec = reversed ? reverse(s.partition_spec) : s.partition_spec
    return "<@$(mesh_name(s.mesh)), [$(join(map(entry, spec), ", "))]>"
end

function mesh_name(m)
    known = WRITING[].meshes
    key = (collect(m.logical_device_ids), m.axis_names, m.axis_sizes)
    key in known || push!(known, key)
    return name_of_mesh(findfirst(==(key), known))
end

name_of_mesh(i) = i == 1 ? "mesh" : "mesh_$(i - 1)"

# Ids that are 0, 1, ... are left out: Shardy refuses them (Ops.jl:3410).
function mesh_lines(meshes)
    return map(enumerate(meshes)) do (i, (ids, names, sizes))
        axes = join(("\"$name\"=$n" for (name, n) in zip(names, sizes)), ", ")
        order = ids == 0:(length(ids) - 1) ? "" : ", device_ids=[$(join(ids, ", "))]"
        "sdy.mesh @$(name_of_mesh(i)) = <[$axes]$order>"
    end
end
