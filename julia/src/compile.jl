"""A result of a compiled program; `info` is what Reactant needs to take it as an argument."""
mutable struct Output
    const type::DataType
    const shape::Dims
    blocks::Vector{Block}
    sharding::Union{Nothing, ArraySharding}
    info::Any
end

"""A compiled program; calling it runs it."""
struct Compiled
    name::String
    thunk::Any
    inputs::Vector{Input}
    outputs::Vector{Output}
    bytes::Int
end

Base.show(io::IO, c::Compiled) = print(io, "Compiled($(c.name))")

"""
    compile(lowered) -> Compiled

Compile a program; runs nothing. It is traced again: Reactant has no way from the text to a
compiled program. The shardings of its results are those that XLA chose until `settle` is called.
"""
function compile(l::Lowered)
    results, outputs = l.trace.results, l.trace.outputs
    compiled = Base.invokelatest(compile_trace, l.trace, l.inputs, l.precision)
    if (results, outputs) != (l.trace.results, l.trace.outputs)
        throw(Wrong(
            "InvalidArgumentError",
            "program '$(l.trace.name)' returned $(l.trace.outputs) when it was traced again, and " *
                "$outputs before; a program must return the same whenever it is traced",
        ))
    end
    return compiled
end

function compile_trace(trace::Trace, inputs::Vector{Input}, precision::String)
    arrays = placeholders(inputs)
    thunk = tracing(Later(with_precision, (Later(compile_arrays, (arrays,)), precision)), trace)
    if any(thunk.donated_args_mask)
        number = argument_with(trace.structure, findfirst(thunk.donated_args_mask) - 1)
        throw(Wrong(
            "InvalidArgumentError",
            "program '$(trace.name)' writes to its argument $number; programs are pure: copy it " *
                "first",
        ))
    end
    outputs = find_outputs(thunk, trace, inputs)
    bytes = sum(o -> local_bytes(o.type, o.blocks), outputs; init = 0)
    return Compiled(trace.name, thunk, inputs, outputs, bytes)
end

function compile_arrays(@nospecialize(arrays::Tuple))
    # With several programs in flight, CPU devices can wait for each other without end.
    sync = platform() == "cpu"
    return without_python(compile_in_sync, arrays, sync)
end

# By default Reactant runs Shardy's propagation itself, before XLA does (Compiler.jl:963-979). That
# drops the constraint of a result that every device has whole, and fails where a constraint lands
# on an argument. XLA's own propagation honours both.
compile_in_sync(@nospecialize(arrays), sync::Bool) = Reactant.compile(
    traced,
    arrays;
    sync,
    shardy_passes = :none,
)

"""The results with the placement that XLA chose."""
function find_outputs(@nospecialize(thunk), trace::Trace, inputs::Vector{Input})
    found = XLA.get_output_shardings(thunk)
    if isempty(found)
        # one device
        id = isempty(inputs) ? first(first(devices())) : only(inputs[1].sharding.mesh.ids)
        return Output[
            Output(T, dims, [whole_block(id, dims)], nothing, nothing)
            for (T, dims) in trace.outputs
        ]
    end
    if length(found) != length(trace.outputs)
        error(
            "program '$(trace.name)' has $(length(trace.outputs)) results, but its executable " *
                "$(length(found)); please report this",
        )
    end
    ids = thunk.global_device_ids
    return Output[
        Output(T, dims, blocks_of(op, dims, ids, trace.name), nothing, nothing)
        for ((T, dims), op) in zip(trace.outputs, found)
    ]
end

function blocks_of(op, @nospecialize(dims::Dims), ids, name)
    any(iszero, dims) && return Block[whole_block(id, dims) for id in ids] # see held_as
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
    settle(compiled, shardings)

Set the sharding of each output, so that it can be an argument of other programs. Fails if the
compiler placed it otherwise.
"""
function settle(c::Compiled, @nospecialize(shardings::Tuple))
    for (i, (o, s)) in enumerate(zip(c.outputs, items(shardings)))
        held = held_as(s, o.shape)
        found = blocks(held, o.shape)
        if prod(o.shape) != 0 && found != o.blocks
            throw(Wrong(
                "MismatchError",
                "program '$(c.name)': output $(i - 1) must lie as $held, but the compiler placed " *
                    "it otherwise: $(o.blocks)",
            ))
        end
        o.info = sharding_info(held, found)
        o.sharding = padded(s, length(o.shape))
        o.blocks = blocks(o.sharding, o.shape)
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

"""
    optimized(compiled) -> String

The program as XLA optimised it for the devices, as HLO.
"""
optimized(c::Compiled) = join(string.(XLA.get_hlo_modules(c.thunk.exec)), "\n")
