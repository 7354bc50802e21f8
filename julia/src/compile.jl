"""What a compiled program takes: a thunk checks types only, in which sizes and shardings are not
(compiler/Thunk.jl:72-76), and computes nonsense for others."""
struct Input
    type::DataType
    shape::Dims
    sharding::ArraySharding
end

"""What it gives; `info` is what Reactant must know of an array to take it as an argument."""
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
(name, value) pairs, passed as keywords and part of the program. There is no cache here: Python
has the one whose key holds everything.
"""
function compile(
    name::String,
    project::String,
    @nospecialize(args::Tuple),
    @nospecialize(out_shardings::Union{Nothing, Tuple}),
    precision::String,
    @nospecialize(static::Tuple),
)
    f = find_function(name, project)
    keywords = NamedTuple(Symbol(key) => value for (key, value) in static)
    for (i, arg) in enumerate(args)
        arg.sharding === nothing && throw(unsettled(i))
    end
    shardings = ArraySharding[s for s in something(out_shardings, ())]
    trace = Trace(f, keywords, shardings)
    # The function may have been loaded just now, in a world that this call does not see.
    return Base.invokelatest(compile_trace, name, trace, args, precision)
end

function unsettled(i)
    return Wrong(
        "StateError",
        "argument $(i - 1) comes from a program whose output shardings are not settled; call " *
            "settle on that program",
    )
end

function compile_trace(name::String, trace::Trace, args::Tuple, precision::String)
    arrays = map(x -> x.array, args)
    # With many programs in flight CPU devices can wait for each other for ever.
    sync = platform() == "cpu"
    thunk = tracing(trace) do
        # Precision is read while products are traced, not when they run (Configuration.jl).
        with_precision(precision) do
            without_python(() -> Reactant.compile(traced, arrays; sync))
        end
    end
    if any(thunk.donated_args_mask)
        throw(Wrong(
            "InvalidArgumentError",
            "program '$name' writes to its argument " *
                "$(findfirst(thunk.donated_args_mask) - 1); programs are pure: copy it first",
        ))
    end
    for (i, (_, dims)) in enumerate(trace.outputs)
        # Raises where they would not be equal.
        isempty(trace.shardings) || blocks(trace.shardings[min(i, end)], dims)
    end
    inputs = [Input(x.type, x.shape, x.sharding) for x in args]
    outputs = find_outputs(name, thunk, trace, args)
    bytes = sum(o -> local_bytes(o.type, o.blocks), outputs; init = 0)
    compiled = Compiled(name, thunk, trace, precision, inputs, outputs, bytes)
    if !isempty(trace.shardings)
        n = length(outputs)
        settle(compiled, Tuple(trace.shardings[min(i, end)] for i in 1:n))
    end
    return compiled
end

function with_precision(f, precision::String)
    isempty(precision) && return f()
    chosen = PRECISIONS[precision]
    return Reactant.with_config(f; dot_general_precision = chosen, convolution_precision = chosen)
end

"""The results as the executable has them: their placement is XLA's choice."""
function find_outputs(name, thunk, trace::Trace, args::Tuple)
    found = XLA.get_output_shardings(thunk)
    if isempty(found)
        # one device
        id = isempty(args) ? first(first(devices())) : only(args[1].sharding.mesh.ids)
        return [
            Output(T, dims, [whole_block(id, dims)], nothing, nothing)
            for (T, dims) in trace.outputs
        ]
    end
    if length(found) != length(trace.outputs)
        error(
            "program '$name' has $(length(trace.outputs)) results, but its executable " *
                "$(length(found)); please report this",
        )
    end
    ids = thunk.global_device_ids
    return map(trace.outputs, found) do (T, dims), op
        Output(T, dims, blocks_of(op, dims, ids, name), nothing, nothing)
    end
end

function blocks_of(op, dims::Dims, ids, name)
    slices, uneven = XLA.sharding_to_concrete_array_indices(op, dims, 0:(length(ids) - 1))
    if uneven
        throw(Wrong(
            "ShardingError",
            "program '$name': the compiler cut an output of shape $dims into blocks that " *
                "are not equal; give out_sharding=",
        ))
    end
    return [block_of(id, slice) for (id, slice) in zip(ids, slices)]
end

function local_bytes(T, found::Vector{Block})
    return sum(prod(b[3] .- b[2]; init = 1) * sizeof(T) for b in found if is_local(b[1]); init = 0)
end

"""
    outputs(compiled) -> [(dtype name, shape, placement), ...]

Of each output its placement: (device id, starts, stops) for every device.
"""
function outputs(c::Compiled)
    placement(o) = [(id, Tuple(a), Tuple(b)) for (id, a, b) in o.blocks]
    return [(element_name(o.type), o.shape, placement(o)) for o in c.outputs]
end

"""
    is_single(compiled) -> Bool

Whether the function gave one array and not a tuple.
"""
is_single(c::Compiled) = c.trace.single

"""
    settle(compiled, shardings)

Say which sharding each output has, so that it can be an argument of other programs. Fails where
the compiler placed it elsewhere.
"""
function settle(c::Compiled, shardings::Tuple)
    for (i, (o, s)) in enumerate(zip(c.outputs, shardings))
        s = padded(s, length(o.shape))
        if prod(o.shape) != 0 && blocks(s, o.shape) != o.blocks
            throw(Wrong(
                "MismatchError",
                "program '$(c.name)': output $(i - 1) must lie as $s, but the compiler placed " *
                    "it otherwise: $(o.blocks)",
            ))
        end
        o.sharding, o.info = s, sharding_info(s, o)
    end
    return nothing
end

function sharding_info(s::ArraySharding, o::Output)
    s.mesh.reactant === nothing && return nothing
    slices = [Tuple((a + 1):b for (a, b) in zip(starts, stops)) for (_, starts, stops) in o.blocks]
    return Reactant.Sharding.ShardInfo(to_reactant(s), slices)
end
