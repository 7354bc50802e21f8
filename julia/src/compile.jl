"""An argument of a compiled program. A thunk checks only types, without sizes and shardings
(compiler/Thunk.jl:72-76), and computes nonsense for other arguments."""
struct Input
    type::DataType
    shape::Dims
    sharding::ArraySharding
end

"""A result of a compiled program; `info` is what Reactant needs to take it as an argument."""
mutable struct Output
    const type::DataType
    const shape::Dims
    const blocks::Vector{Block}
    sharding::Union{Nothing, ArraySharding}
    info::Any
end

"""A compiled program; calling it runs it."""
struct Compiled
    name::String
    thunk::Any
    trace::Trace
    precision::String
    inputs::Vector{Input}
    outputs::Vector{Output}
    bytes::Int
end

Base.show(io::IO, c::Compiled) = print(io, "Compiled($(c.name))")

const PRECISIONS = Dict(
    "default" => Reactant.PrecisionConfig.DEFAULT,
    "high" => Reactant.PrecisionConfig.HIGH,
    "highest" => Reactant.PrecisionConfig.HIGHEST,
)

"""
    compile(name, project, args, out_shardings, precision, static) -> Compiled

Compile the Julia function of that name for arguments like these; runs nothing. `static` are
(name, value) pairs, passed as keywords and part of the program. Python holds the cache of
compiled programs.
"""
function compile(
    name::String,
    project::String,
    @nospecialize(args::Tuple),
    @nospecialize(out_shardings::Union{Nothing, Tuple}),
    precision::String,
    @nospecialize(static::Tuple),
)
    trace = trace_of(name, project, out_shardings, static)
    for (i, arg) in enumerate(items(args))
        arg.sharding === nothing && throw(unsettled(i))
    end
    # The function may have been loaded just now, in a newer world age than this call's.
    return Base.invokelatest(compile_trace, name, trace, args, precision)
end

function trace_of(
    name::String,
    project::String,
    @nospecialize(out_shardings::Union{Nothing, Tuple}),
    @nospecialize(static::Tuple),
)
    f = find_function(name, project)
    keywords = isempty(static) ? (;) : NamedTuple(Symbol(key) => value for (key, value) in static)
    return Trace(f, keywords, ArraySharding[items(something(out_shardings, ()))...])
end

function unsettled(i)
    return Wrong(
        "StateError",
        "argument $(i - 1) comes from a program whose output shardings are not settled; call " *
            "settle on that program",
    )
end

function compile_trace(name::String, trace::Trace, @nospecialize(args::Tuple), precision::String)
    arrays = Tuple(Any[x.array for x in items(args)])
    # Reactant reads the precision while it traces products, not when they run (Configuration.jl).
    thunk = tracing(Later(with_precision, (Later(compile_arrays, (arrays,)), precision)), trace)
    if any(thunk.donated_args_mask)
        throw(Wrong(
            "InvalidArgumentError",
            "program '$name' writes to its argument " *
                "$(findfirst(thunk.donated_args_mask) - 1); programs are pure: copy it first",
        ))
    end
    check_outputs(trace)
    inputs = Input[Input(x.type, x.shape, x.sharding) for x in items(args)]
    outputs = find_outputs(name, thunk, trace, args)
    bytes = sum(o -> local_bytes(o.type, o.blocks), outputs; init = 0)
    compiled = Compiled(name, thunk, trace, precision, inputs, outputs, bytes)
    if !isempty(trace.shardings)
        n = length(outputs)
        settle(compiled, Tuple(ArraySharding[trace.shardings[min(i, end)] for i in 1:n]))
    end
    return compiled
end

"""Raise an error if blocks of an output would have different shapes."""
function check_outputs(trace::Trace)
    isempty(trace.shardings) && return nothing
    for (i, (_, dims)) in enumerate(trace.outputs)
        blocks(trace.shardings[min(i, end)], dims)
    end
    return nothing
end

function compile_arrays(@nospecialize(arrays::Tuple))
    # With several programs in flight, CPU devices can wait for each other without end.
    sync = platform() == "cpu"
    return without_python(compile_in_sync, arrays, sync)
end

compile_in_sync(@nospecialize(arrays), sync::Bool) = Reactant.compile(traced, arrays; sync)

function with_precision(f, precision::String)
    isempty(precision) && return f()
    chosen = PRECISIONS[precision]
    return Reactant.with_config(f; dot_general_precision = chosen, convolution_precision = chosen)
end

"""The results with the placement that XLA chose."""
function find_outputs(name, @nospecialize(thunk), trace::Trace, @nospecialize(args::Tuple))
    found = XLA.get_output_shardings(thunk)
    if isempty(found)
        # one device
        id = isempty(args) ? first(first(devices())) : only(args[1].sharding.mesh.ids)
        return Output[
            Output(T, dims, [whole_block(id, dims)], nothing, nothing)
            for (T, dims) in items(trace.outputs)
        ]
    end
    if length(found) != length(trace.outputs)
        error(
            "program '$name' has $(length(trace.outputs)) results, but its executable " *
                "$(length(found)); please report this",
        )
    end
    ids = thunk.global_device_ids
    return Output[
        Output(T, dims, blocks_of(op, dims, ids, name), nothing, nothing)
        for ((T, dims), op) in zip(items(trace.outputs), found)
    ]
end

function blocks_of(op, @nospecialize(dims::Dims), ids, name)
    slices, uneven = XLA.sharding_to_concrete_array_indices(op, dims, 0:(length(ids) - 1))
    if uneven
        throw(Wrong(
            "ShardingError",
            "program '$name': the compiler cut an output of shape $dims into blocks that " *
                "are not equal; give out_sharding=",
        ))
    end
    return Block[block_of(id, slices[i]) for (i, id) in enumerate(ids)]
end

function local_bytes(T, found::Vector{Block})
    return sum(prod(b[3] .- b[2]; init = 1) * sizeof(T) for b in found if is_local(b[1]); init = 0)
end

"""
    outputs(compiled) -> [(dtype name, shape, placement), ...]

The placement of each output: (device id, starts, stops) for every device.
"""
function outputs(c::Compiled)
    placement(o) = Any[(id, Tuple(a), Tuple(b)) for (id, a, b) in o.blocks]
    return Any[(element_name(o.type), o.shape, placement(o)) for o in c.outputs]
end

"""
    is_single(compiled) -> Bool

Whether the function returned one array and not a tuple.
"""
is_single(c::Compiled) = c.trace.single

"""
    settle(compiled, shardings)

Set the sharding of each output, so that it can be an argument of other programs. Fails if the
compiler placed it otherwise.
"""
function settle(c::Compiled, @nospecialize(shardings::Tuple))
    for (i, (o, s)) in enumerate(zip(c.outputs, items(shardings)))
        s = padded(s, length(o.shape))
        if prod(o.shape) != 0 && blocks(s, o.shape) != o.blocks
            throw(Wrong(
                "MismatchError",
                "program '$(c.name)': output $(i - 1) must lie as $s, but the compiler placed " *
                    "it otherwise: $(o.blocks)",
            ))
        end
        o.sharding, o.info = s, sharding_info(s, o.blocks)
    end
    return nothing
end

"""Blocks in Reactant's form: ranges that count from 1."""
function slices_of(found::Vector{Block}, n::Int)
    slices = Vector{NTuple{n, UnitRange{Int}}}(undef, length(found))
    for (i, (_, starts, stops)) in enumerate(found)
        slices[i] = Tuple(UnitRange.(starts .+ 1, stops))
    end
    return slices
end

function sharding_info(s::ArraySharding, found::Vector{Block})
    s.mesh.reactant === nothing && return nothing
    return Reactant.Sharding.ShardInfo(to_reactant(s), slices_of(found, length(s.spec)))
end
