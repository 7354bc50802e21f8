struct MisMatchedThunkTypeError <: Exception
    wanted::Any
    got::Any
end

function Base.showerror(io::IO, error::MisMatchedThunkTypeError)
    return print(
        io,
        "no method is defined for this combination of argument types. You passed in \
             $(error.got), but the thunk was compiled for $(error.wanted)",
    )
end

"""What was found while tracing with arrays that look like the arguments."""
struct Executable
    inputs::Vector{Any} # per argument: size and XLA's sharding, nothing for frozen values
    outputs::Vector{XLA.OpSharding}
    devices::Vector{Int64}
    sharded::Bool
    tag::String
    program::Program
    text::Any # gives it
end

# Of one type, unlike the real one: for tests Julia would compile more than they compute.
struct Thunk
    f::Any
    exec::Executable
    same::Vector{Int}    # per argument: the first argument that was the same array
    taken::Vector{Int}   # per argument: the one that the program put into it, or 0
    results::Vector{Any} # per result: the number of the argument that it is, or its traced type
    single::Bool
    argument_types::Any
    global_device_ids::Vector{Int64}
    donated_args_mask::Vector{Bool}
end

XLA.get_output_shardings(t::Thunk) = t.exec.sharded ? t.exec.outputs : XLA.OpSharding[]
XLA.get_hlo_modules(exec::Executable) = [exec.text()]
Base.show(io::IO, t::Thunk) = print(io, "Reactant compiled function $(t.f)")

"""
    compile(f, args; sync, kwargs...)

Trace `f` with arrays of the arguments' types and sizes, which calls it once. What is not an array
of ours is frozen. Calls of the result compute what was recorded.
"""
function compile(
    @nospecialize(f),
    @nospecialize(args::Tuple);
    sync::Bool = false,
    shardy_passes::Symbol = :post_sdy_propagation,
)
    @assert shardy_passes in (:none, :to_mhlo_shardings, :post_sdy_propagation)
    return compile_any(f, Any[args...], shardy_passes)
end

"""Whether outputs lie elsewhere than asked; said by tests."""
const ELSEWHERE = Ref(false)

function compile_any(@nospecialize(f), args::Vector{Any}, shardy_passes::Symbol)
    COMPILATIONS[] += 1
    traced = trace(f, args)
    program = Program(traced)
    arrays = Any[x for x in args if x isa ConcreteIFRTArray]
    meshes = Any[x.sharding.mesh for x in arrays if Sharding.is_sharded(x.sharding)]
    told = Any[v for v in program.values if v.operation isa Ops.Constrained]
    append!(meshes, Any[v.operation.sharding.mesh for v in told])
    foreach(v -> v.operation.moves = !lies_there(v, arrays), told)
    ids = isempty(meshes) ? Int64[] : first(meshes).device_ids
    @assert allequal(m.device_ids for m in meshes) "All meshes must have the same device ids"
    results = Any[something(argument_of(traced, y), typeof(y)) for y in traced.found]
    outputs = XLA.OpSharding[
        output_sharding(v, arrays, shardy_passes, length(ids))
        for (v, r) in zip(program.results, results)
        if r isa DataType
    ]
    inputs = Any[x isa ConcreteIFRTArray ? (size(x), hlo_of(x)) : nothing for x in args]
    tag = string(f, Any[size(x) for x in arrays])
    text() = program_text(f, args, program; hlo = true)
    exec = Executable(inputs, outputs, ids, !isempty(ids), tag, program, text)
    types = Tuple{Any[Core.Typeof(x) for x in args]...}
    changed = traced.written .& iszero.(traced.taken)
    donated = Bool[w for (x, w) in zip(args, changed) if x isa ConcreteIFRTArray]
    return Thunk(f, exec, aliases(args), traced.taken, results, traced.single, types, ids, donated)
end

# A result that is an argument is no output of the executable, unless it was written to.
function argument_of(traced::Trace, y)
    return findfirst(i -> traced.samples[i] === y && !traced.written[i], eachindex(traced.samples))
end

hlo_of(x::ConcreteIFRTArray{T, N}) where {T, N} = Sharding.is_sharded(x.sharding) ?
    Sharding.to_hlo(Sharding.unwrap_shardinfo(x.sharding), N) :
    nothing

# The real one asks Shardy. Here: as told, else like an argument of the same size, else copies.
function output_sharding(v::Value, arrays, shardy_passes, devices)
    if v.operation isa Ops.Constrained
        told = Sharding.to_hlo(v.operation.sharding, length(v.shape))
        ELSEWHERE[] && return elsewhere(told, length(v.shape), devices)
        # Reactant's own propagation drops the constraint of a result that all devices have whole.
        told.replicated && shardy_passes !== :none || return told
    end
    for x in arrays
        size(x) == v.shape && Sharding.is_sharded(x.sharding) && return hlo_of(x)
    end
    return XLA.OpSharding(true, false, Int64[])
end

lies_there(v::Value, arrays) = any(arrays) do x
    there = Sharding.to_hlo(v.operation.sharding, length(v.shape))
    size(x) == v.shape && Sharding.is_sharded(x.sharding) && hlo_of(x) == there
end

elsewhere(s, dimensions, devices) = s.replicated && dimensions > 0 ?
    XLA.OpSharding(
        false,
        false,
        reshape(collect(Int64, 0:(devices - 1)), ntuple(i -> i == 1 ? devices : 1, dimensions)),
    ) :
    XLA.OpSharding(true, false, Int64[])

# Types alone are checked: arrays of other sizes, or placed otherwise, are taken for what the
# program was compiled for.
(t::Thunk)(@nospecialize(args...)) = run_any(t, Any[args...])

function run_any(t::Thunk, args::Vector{Any})
    types = Tuple{Any[Core.Typeof(x) for x in args]...}
    types == t.argument_types || throw(MisMatchedThunkTypeError(t.argument_types, types))
    numbers = Any[argument(t, i, args[of]) for (i, of) in enumerate(t.same)]
    values = compute(t.exec.program, numbers)
    next = Ref(0)
    wrapped = Any[result(t, y, of, args, next) for (y, of) in zip(values, t.results)]
    overwrite!(t, args)
    exchange!(t, args)
    donate!(t, args)
    return t.single ? only(wrapped) : Tuple(wrapped)
end

# Arguments that were one array at the compilation are taken for one ever after.
function overwrite!(t::Thunk, args)
    for (i, of) in enumerate(t.same)
        i == of || !(args[i] isa ConcreteIFRTArray) || (args[i].data = args[of].data)
    end
    return nothing
end

# An argument that a program puts into another is not copied: the other array gets its buffer.
function exchange!(t::Thunk, args)
    before = Any[x isa ConcreteIFRTArray ? x.data : nothing for x in args]
    for (i, of) in enumerate(t.taken)
        of == 0 || (args[i].data = before[of])
    end
    return nothing
end

argument(::Thunk, _, _) = nothing # frozen
function argument(t::Thunk, i, x::ConcreteIFRTArray{T, N}) where {T, N}
    shape, hlo = t.exec.inputs[i]
    buffer = x.data.buffer
    hlo === nothing || return assemble(buffer, hlo, T, shape, t.exec.tag)
    return fitted(last(first(buffer.parts)), Base.OneTo.(shape)) |> copy
end

function donate!(t::Thunk, args)
    arrays = Any[x for x in args if x isa ConcreteIFRTArray]
    for (x, donated) in zip(arrays, t.donated_args_mask)
        donated && setfield!(x, :donated, true)
    end
    return nothing
end

# An argument that comes back unchanged comes back without its sharding.
function result(t::Thunk, y, of::Int, args, _)
    x = args[of]
    return ConcreteIFRTArray{eltype(x), ndims(x)}(x.data, size(x))
end

function result(t::Thunk, value::Array{T}, type::Type, args, next) where {T}
    next[] += 1
    is_number, shape = type <: Number, size(value)
    client = XLA.default_backend()
    if !t.exec.sharded
        first_array = findfirst(x -> x isa ConcreteIFRTArray, args)
        device = first_array === nothing ?
            XLA.default_device(client) :
            XLA.device(args[first_array])
        data = XLA.IFRT.AsyncArray(XLA.IFRT.Array(client, value, device), nothing)
        is_number && return ConcreteIFRTNumber{T}(data, Sharding.NoShardInfo(), false)
        return ConcreteIFRTArray{T, length(shape)}(data, shape)
    end
    hlo = t.exec.outputs[next[]]
    ids = t.global_device_ids
    slices = first(XLA.sharding_to_concrete_array_indices(hlo, shape, 0:(length(ids) - 1)))
    mesh = Sharding.Mesh(ids, 0:(length(ids) - 1), (:flat_mesh,), (length(ids),))
    info = Sharding.ShardInfo(Sharding.HloSharding(hlo, mesh), slices)
    parts = Pair{XLA.Device, Array}[
        XLA.get_device(client, id) => blocks(value, s)
        for (id, s) in zip(ids, slices)
    ]
    data = on_devices(client, parts, (; mesh), shape)
    is_number && return ConcreteIFRTNumber{T}(data, info, false)
    return ConcreteIFRTArray{T, length(shape)}(data, shape, info)
end

"""Compiles, and runs once."""
macro jit(call)
    f, arguments = call.args[1], call.args[2:end]
    return :(
        let arguments = ($(esc.(arguments)...),)
            compile($(esc(f)), arguments)(arguments...)
        end
    )
end

macro compile(options...)
    call = last(options)
    return :(compile($(esc(call.args[1])), ($(esc.(call.args[2:end])...),)))
end
