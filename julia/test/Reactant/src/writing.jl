# Products, transposes and shardings are written as StableHLO, and nothing else.

"""The module that is written: its operations, and the meshes that its shardings name."""
struct Writing
    lines::Vector{String}
    meshes::Vector{Any}
end

"""A tensor of the module."""
struct Tensor
    type::DataType
    shape::Dims
    name::String
end

tensor(T, shape) = "tensor<$(join((string(n, "x") for n in shape)))$(MLIR_NAMES[T])>"
tensor(x::Tensor) = tensor(x.type, x.shape)

"""Write an operation that gives a tensor of this type and shape."""
function write_down(writing::Writing, T, shape, operation::String)
    name = "%$(length(writing.lines))"
    push!(writing.lines, "$name = $operation")
    return Tensor(T, shape, name)
end

is_written(v::Value) = v.operation isa Union{Argument, Transposed, Product} ||
    v.operation isa Ops.Constrained && v.operation.sharding isa Sharding.NamedSharding

"""The tensors of a program's results, where all its operations can be written."""
function write_results(writing::Writing, program::Program, args)
    tensors = IdDict{Value, Tensor}()
    arrays = [i for i in unique(aliases(args)) if args[i] isa ConcreteIFRTArray]
    entered = Dict(i => entering(writing, args[i], at - 1) for (at, i) in enumerate(arrays))
    for v in program.values
        tensors[v] = v.operation isa Argument ?
            entered[v.operation.number] :
            write_value(writing, v.operation, v, (tensors[x] for x in v.operands)...)
    end
    return Tensor[turned(writing, tensors[v]) for v in program.results]
end

function entering(writing, x::ConcreteIFRTArray{T}, number) where {T}
    return turned(writing, Tensor(T, reverse(size(x)), "%arg$number"))
end

# Within a module tensors have the sizes of Julia's arrays; at its ends they have them reversed.
function turned(writing, x::Tensor)
    n = length(x.shape)
    return n < 2 ? x : transposed(writing, x, ntuple(i -> n + 1 - i, n))
end

write_value(writing, operation::Transposed, _, x) = transposed(writing, x, operation.order)

function transposed(writing, x::Tensor, order)
    shape = Dims(x.shape[i] for i in order)
    operands = "$(x.name), dims = [$(join(order .- 1, ", "))]"
    types = "($(tensor(x))) -> $(tensor(x.type, shape))"
    return write_down(writing, x.type, shape, "stablehlo.transpose $operands : $types")
end

function write_value(writing, operation::Product, v, x, y)
    precision = "precision = [$(operation.precision), $(operation.precision)]"
    operands = "$(x.name), $(y.name), contracting_dims = [1] x [0], $precision"
    types = "($(tensor(x)), $(tensor(y))) -> $(tensor(v.type, v.shape))"
    return write_down(writing, v.type, v.shape, "stablehlo.dot_general $operands : $types")
end

function write_value(writing, operation::Ops.Constrained, _, x)
    where_ = shardy_text(writing, operation.sharding, false)
    line = "sdy.sharding_constraint $(x.name) $where_ : $(tensor(x))"
    return write_down(writing, x.type, x.shape, line)
end

"""Shardy's form of a sharding; its dimensions are reversed at the module's ends."""
function shardy_text(writing, s, reversed::Bool)
    s isa Sharding.NamedSharding || cannot_record("the text of a $(typeof(s))")
    entry(names) = "{" * join(("\"$name\"" for name in names if name !== nothing), ", ") * "}"
    spec = reversed ? reverse(s.partition_spec) : s.partition_spec
    return "<@$(mesh_name(writing, s.mesh)), [$(join(map(entry, spec), ", "))]>"
end

function mesh_name(writing, m)
    known = writing.meshes
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
