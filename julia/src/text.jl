"""
    text(compiled, stage) -> String

The program as text: "stablehlo" with Shardy's shardings, "stablehlo_mhlo" with XLA's,
"stablehlo_unsharded" without any, or "hlo" as optimised for the devices.
"""
function text(c::Compiled, stage::String)
    haskey(TEXTS, stage) ||
        throw(Wrong(
            "InvalidArgumentError",
            "stage is one of $(join(sort!(collect(keys(TEXTS))), ", ")), got '$stage'",
        ))
    sharded = stage != "stablehlo_unsharded"
    shardings = sharded ? c.trace.shardings : ArraySharding[]
    trace = Trace(c.trace.f, c.trace.static, shardings)
    return write_text(stage, trace, c.inputs, c.precision)
end

"""
    lower(name, project, inputs, out_shardings, precision, static) -> String

A program as StableHLO with Shardy's shardings, for described arguments: `inputs` are
(dtype, shape, sharding). Compiles nothing, runs nothing, and needs no memory for the arguments.
"""
function lower(
    name::String,
    project::String,
    @nospecialize(inputs::Tuple),
    @nospecialize(out_shardings::Union{Nothing, Tuple}),
    precision::String,
    @nospecialize(static::Tuple),
)
    trace = trace_of(name, project, out_shardings, static)
    found = Input[
        Input(element_type(dtype), Dims(shape), padded(s, length(shape)))
        for (dtype, shape, s) in inputs
    ]
    # The function may have been loaded just now, in a newer world age than this call's.
    written = Base.invokelatest(write_text, "stablehlo", trace, found, precision)
    check_outputs(trace)
    return written
end

function write_text(stage::String, trace::Trace, inputs::Vector{Input}, precision::String)
    arrays = Tuple(placeholder(x, stage != "stablehlo_unsharded") for x in inputs)
    return tracing(trace) do
        with_precision(precision) do
            without_python(() -> TEXTS[stage](arrays))
        end
    end
end

const TEXTS = Dict{String, Function}(
    "stablehlo" => arrays -> String(Reactant.@code_hlo traced(arrays...)),
    "stablehlo_mhlo" =>
        arrays -> String(Reactant.@code_hlo shardy_passes = :to_mhlo_shardings traced(arrays...)),
    "stablehlo_unsharded" => arrays -> String(Reactant.@code_hlo traced(arrays...)),
    "hlo" => arrays -> string(Reactant.@code_xla traced(arrays...)),
)

"""
An argument without its content: an array with a size and a sharding over a buffer of one element.
Reactant uses nothing else of an argument while it traces (Tracing.jl:1406-1423,
TracedUtils.jl:536-548); without a sharding, also the buffer's device (Compiler.jl:1213-1230).
"""
function placeholder(x::Input, sharded::Bool)
    one = allocate(x.type, ntuple(Returns(1), length(x.shape)))
    data = on_one_device(one, minimum(filter(is_local, x.sharding.mesh.ids))).data
    info = sharded ? sharding_info(x.sharding, blocks(x.sharding, x.shape)) : nothing
    return wrap(x.type, Val(length(x.shape)), data, x.shape, info)
end
