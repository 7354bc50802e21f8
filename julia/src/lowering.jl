"""An argument of a compiled program. A thunk checks only types, without sizes and shardings
(compiler/Thunk.jl:72-76), and computes nonsense for other arguments."""
struct Input
    type::DataType
    shape::Dims
    sharding::ArraySharding
end

"""A program before XLA compiles it."""
struct Lowered
    trace::Trace
    inputs::Vector{Input}
    precision::String
    text::String
end

Base.show(io::IO, l::Lowered) = print(io, "Lowered($(l.trace.name))")

const PRECISIONS = Dict(
    "default" => Reactant.PrecisionConfig.DEFAULT,
    "high" => Reactant.PrecisionConfig.HIGH,
    "highest" => Reactant.PrecisionConfig.HIGHEST,
)

"""
    lower(name, body, project, structure, inputs, wanted, precision, static) -> Lowered

Trace the Julia function `body`, as it is defined now, for described arguments: `structure` is that
of the tuple of arguments (trees.jl), `inputs` are (dtype, shape, sharding) of each array. `wanted`
are the results' shardings: none, one for all, or one for each, where nothing leaves it to XLA.
`static` are (name, value) pairs, passed as keywords and part of the program, which errors call
`name`. Compiles nothing, runs nothing, and needs no memory for the arguments.
"""
function lower(
    name::String,
    body::String,
    project::String,
    @nospecialize(structure::Tuple),
    @nospecialize(inputs::Tuple),
    @nospecialize(wanted::Tuple),
    precision::String,
    @nospecialize(static::Tuple),
)
    f = find_function(body, project)
    keywords = isempty(static) ? (;) : NamedTuple(Symbol(key) => value for (key, value) in static)
    found = Input[
        Input(element_type(dtype), Dims(shape), padded(s, length(shape)))
        for (dtype, shape, s) in items(inputs)
    ]
    meshes = DeviceMesh[x.sharding.mesh for x in found if x.sharding.mesh.reactant !== nothing]
    trace = Trace(
        name,
        f,
        keywords,
        structure,
        items(wanted),
        isempty(meshes) ? nothing : first(meshes),
    )
    # The function may have been loaded just now, in a newer world age than this call's.
    return Lowered(trace, found, precision, Base.invokelatest(write_text, trace, found, precision))
end

"""
    description(lowered) -> (text, structure, outputs)

The program as StableHLO with Shardy's shardings, the structure of its results (trees.jl), and the
dtype and shape of each.
"""
function description(l::Lowered)
    rows = Any[(element_name(T), dims) for (T, dims) in l.trace.outputs]
    return l.text, l.trace.results, rows
end

function write_text(trace::Trace, inputs::Vector{Input}, precision::String)
    code = Later(without_python, (stablehlo, placeholders(inputs)))
    return tracing(Later(with_precision, (code, precision)), trace)
end

stablehlo(@nospecialize(arrays::Tuple)) = String(Reactant.@code_hlo traced(arrays...))

# Reactant reads the precision while it traces products, not when they run (Configuration.jl).
function with_precision(f, precision::String)
    isempty(precision) && return f()
    chosen = PRECISIONS[precision]
    return Reactant.with_config(f; dot_general_precision = chosen, convolution_precision = chosen)
end

# Each argument has one of its own: Reactant takes an array that is given twice for one argument,
# and the program would later use the first array for both (Tracing.jl:1419, Codegen.jl:1248-1313).
placeholders(inputs::Vector{Input}) = Tuple(Any[placeholder(x) for x in inputs])

"""
An argument without its content: an array with a size and a sharding over a buffer of one element.
Reactant uses nothing else of an argument while it traces and compiles (Tracing.jl:1406-1423,
TracedUtils.jl:536-548, Codegen.jl:744-934); without a sharding, also the buffer's device
(Compiler.jl:1213-1230).
"""
function placeholder(x::Input)
    one = allocate(x.type, ntuple(Returns(1), length(x.shape)))
    data = on_one_device(one, minimum(filter(is_local, x.sharding.mesh.ids))).data
    held = held_as(x.sharding, x.shape)
    info = sharding_info(held, blocks(held, x.shape))
    return wrap(x.type, Val(length(x.shape)), data, x.shape, info)
end
