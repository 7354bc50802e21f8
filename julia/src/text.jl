"""
    text(compiled, stage) -> String

The program as text: "stablehlo" with Shardy's shardings, "stablehlo_mhlo" with them as XLA writes
them, "stablehlo_unsharded" without, or "hlo" as optimised for the devices.
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
    arrays = Tuple(placeholder(x, sharded) for x in c.inputs)
    return tracing(trace) do
        with_precision(c.precision) do
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

"""An array without content, like those the program takes; it holds memory while text is made."""
function placeholder(x::Input, sharded::Bool)
    sharded || return Reactant.to_rarray(allocate(x.type, x.shape))
    here = filter(b -> is_local(b[1]), blocks(x.sharding, x.shape))
    data = Tuple(allocate(x.type, Tuple(stops .- starts)) for (_, starts, stops) in here)
    holders = Tuple((id,) for (id, _, _) in here)
    name = element_name(x.type)
    return from_blocks(name, x.shape, x.sharding, data, holders).array
end
