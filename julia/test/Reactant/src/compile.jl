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
    hlo::Any # gives its text
end

# Of one type, unlike the real one: for tests Julia would compile more than they compute.
struct Thunk
    f::Any
    exec::Executable
    frozen::Vector{Any}
    same::Vector{Int}    # per argument: the first argument that was the same array
    results::Vector{Any} # per result: its size, or the number of the argument that it is
    single::Bool
    argument_types::Any
    global_device_ids::Vector{Int64}
    donated_args_mask::Vector{Bool}
    context::IdDict{Any, Any}
    world::UInt
end

XLA.get_output_shardings(t::Thunk) = t.exec.sharded ? t.exec.outputs : XLA.OpSharding[]
XLA.get_hlo_modules(exec::Executable) = [exec.hlo()]
Base.show(io::IO, t::Thunk) = print(io, "Reactant compiled function $(t.f)")

const TracedArguments = Ref(false)
within_compile() = TracedArguments[]

"""
    compile(f, args; sync, kwargs...)

Trace `f` with arrays of the arguments' sizes. What is not an array of ours is frozen. The results
of a real trace cannot depend on values; here they are numbers that nobody should look at.
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
    context = copy(task_local_storage())
    same = aliases(args)
    samples = Any[sample(x) for x in args]
    samples = samples[same]
    before = Any[x isa Array ? copy(x) : nothing for x in samples]
    outer, Ops.CONSTRAINTS[] = Ops.CONSTRAINTS[], IdDict{Any, Any}()
    local result, constraints
    try
        result = f(samples...)
        constraints = Ops.CONSTRAINTS[]
    finally
        Ops.CONSTRAINTS[] = outer
    end
    arrays = Any[x for x in args if x isa ConcreteIFRTArray]
    meshes = Any[x.sharding.mesh for x in arrays if Sharding.is_sharded(x.sharding)]
    append!(meshes, Any[s.mesh for s in values(constraints)])
    ids = isempty(meshes) ? Int64[] : first(meshes).device_ids
    @assert allequal(m.device_ids for m in meshes) "All meshes must have the same device ids"
    donated = Bool[
        b !== nothing && reinterpret_bits(x) != reinterpret_bits(b)
        for (x, b) in zip(samples, before)
        if x isa Array
    ]
    found = result isa Tuple ? Any[result...] : Any[result]
    # A result that is an argument is no output of the executable, unless it was written to.
    kept = [x for (x, gone) in zip(filter(x -> x isa Array, samples), donated) if !gone]
    results = Any[
        any(x -> x === y, kept) ? findfirst(x -> x === y, samples) : size(y)
        for y in found
    ]
    outputs = XLA.OpSharding[
        output_sharding(y, constraints, arrays, shardy_passes, length(ids))
        for (y, r) in zip(found, results)
        if r isa Tuple
    ]
    inputs = Any[x isa ConcreteIFRTArray ? (size(x), hlo_of(x)) : nothing for x in args]
    world, precision = Base.get_world_counter(), PRECISION[]
    write() = with_config(; dot_general_precision = precision) do
        program_text(f, Tuple(args); hlo = true)
    end
    hlo() = as_traced(write, Any[], context, world)
    tag = string(f, Any[size(x) for x in arrays])
    exec = Executable(inputs, outputs, ids, !isempty(ids), tag, hlo)
    frozen = Any[x isa ConcreteIFRTArray ? nothing : x for x in args]
    types = Tuple{Any[Core.Typeof(x) for x in args]...}
    single = !(result isa Tuple)
    return Thunk(f, exec, frozen, same, results, single, types, ids, donated, context, world)
end

"""For each argument the number of the first that is the same array: they are traced as one."""
aliases(args) = Int[findfirst(y -> y === x, args) for x in args]

reinterpret_bits(x::Array) = isempty(x) ? UInt8[] : copy(reinterpret(UInt8, vec(x)))

sample(x) = x
function sample(x::ConcreteIFRTArray{T, N}) where {T, N}
    x.donated && error("$(typeof(x)) has already been donated!")
    values = T <: ReactantFloat8 ? reinterpret(T, ones(UInt8, length(x))) : ones_of(T, length(x))
    return reshape(collect(values), size(x))
end
ones_of(::Type{T}, n) where {T} = fill(T(1), n)

hlo_of(x::ConcreteIFRTArray{T, N}) where {T, N} = Sharding.is_sharded(x.sharding) ?
    Sharding.to_hlo(Sharding.unwrap_shardinfo(x.sharding), N) :
    nothing

# The real one asks Shardy. Here: as told, else like an argument of the same size, else copies.
function output_sharding(@nospecialize(y), constraints, arrays, shardy_passes, devices)
    if haskey(constraints, y)
        told = Sharding.to_hlo(constraints[y], ndims(y))
        ELSEWHERE[] && return elsewhere(told, ndims(y), devices)
        # Reactant's own propagation drops the constraint of a result that all devices have whole.
        told.replicated && shardy_passes !== :none || return told
    end
    for x in arrays
        size(x) == size(y) && Sharding.is_sharded(x.sharding) && return hlo_of(x)
    end
    return XLA.OpSharding(true, false, Int64[])
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
    values = as_traced(t.f, numbers, t.context, t.world)
    values = t.single ? Any[values] : Any[values...]
    next = Ref(0)
    wrapped = Any[result(t, y, of, args, next) for (y, of) in zip(values, t.results)]
    overwrite!(t, args)
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

# Here a program is run by calling its function again: with what was around it when it was traced,
# and as it was defined then.
function as_traced(@nospecialize(f), numbers::Vector{Any}, context, world)
    task = current_task()
    storage, constraints = task.storage, Ops.CONSTRAINTS[]
    task.storage, Ops.CONSTRAINTS[] = context, IdDict{Any, Any}()
    try
        return Base.invoke_in_world(world, f, numbers...)
    finally
        task.storage, Ops.CONSTRAINTS[] = storage, constraints
    end
end

argument(t::Thunk, i, _) = t.frozen[i]
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

function result(t::Thunk, y, shape::Tuple, args, next)
    next[] += 1
    T = y isa Number ? typeof(y) : eltype(y)
    value = y isa Number ? fill(y) : collect(y)
    client = XLA.default_backend()
    if !t.exec.sharded
        first_array = findfirst(x -> x isa ConcreteIFRTArray, args)
        device = first_array === nothing ?
            XLA.default_device(client) :
            XLA.device(args[first_array])
        data = XLA.IFRT.AsyncArray(XLA.IFRT.Array(client, value, device), nothing)
        y isa Number && return ConcreteIFRTNumber{T}(data, Sharding.NoShardInfo(), false)
        return ConcreteIFRTArray{T, length(shape)}(data, shape)
    end
    hlo = t.exec.outputs[next[]]
    ids = t.global_device_ids
    slices = first(XLA.sharding_to_concrete_array_indices(hlo, Dims(shape), 0:(length(ids) - 1)))
    mesh = Sharding.Mesh(ids, 0:(length(ids) - 1), (:flat_mesh,), (length(ids),))
    info = Sharding.ShardInfo(Sharding.HloSharding(hlo, mesh), slices)
    parts = Pair{XLA.Device, Array}[
        XLA.get_device(client, id) => blocks(value, s)
        for (id, s) in zip(ids, slices)
    ]
    data = on_devices(client, parts, (; mesh), Dims(shape))
    y isa Number && return ConcreteIFRTNumber{T}(data, info, false)
    return ConcreteIFRTArray{T, length(shape)}(data, Dims(shape), info)
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
