"""A program as text: not StableHLO of what it computes, but of its arguments and results."""
struct TextualModule
    ir::String
end

Base.String(text::TextualModule) = text.ir
Base.show(io::IO, text::TextualModule) = print(io, text.ir)

const MLIR_NAMES = Dict{Any, String}(
    Bool => "i1",
    Int8 => "i8",
    Int16 => "i16",
    Int32 => "i32",
    Int64 => "i64",
    UInt8 => "ui8",
    UInt16 => "ui16",
    UInt32 => "ui32",
    UInt64 => "ui64",
    Float16 => "f16",
    Float32 => "f32",
    Float64 => "f64",
    BFloat16 => "bf16",
    ComplexF32 => "complex<f32>",
    ComplexF64 => "complex<f64>",
    F8E5M2 => "f8E5M2",
    F8E4M3FN => "f8E4M3FN",
    F8E4M3B11FNUZ => "f8E4M3B11FNUZ",
    F8E5M2FNUZ => "f8E5M2FNUZ",
    F8E4M3FNUZ => "f8E4M3FNUZ",
)

tensor(T, shape) = "tensor<" *
    join((string(n, "x") for n in reverse(shape)), "") *
    MLIR_NAMES[T] *
    ">"

function program_text(f, args::Tuple; shardy_passes = :none, hlo = false)
    thunk = compile(f, args)
    COMPILATIONS[] -= 1
    inputs = join(
        (
            "%arg$(i - 1): $(tensor(eltype(x), size(x)))" *
                written(x.sharding, ndims(x), shardy_passes)
            for (i, x) in enumerate(args)
            if x isa ConcreteIFRTArray
        ),
        ", ",
    )
    head = hlo ? "HloModule reactant_$f" : "module @reactant_$f"
    return """
    $head attributes {mhlo.num_partitions = $(max(1, length(thunk.global_device_ids)))} {
      func.func @main($inputs) {
        // precision = [$(PRECISION[]), $(PRECISION[])], $(length(thunk.results)) results
      }
    }
    """
end

function written(info, n, shardy_passes)
    Sharding.is_sharded(info) || return ""
    s = Sharding.unwrap_shardinfo(info)
    shardy_passes === :to_mhlo_shardings &&
        return " {mhlo.sharding = \"$(Sharding.to_hlo(s, n).tile_assignment)\"}"
    s isa Sharding.NamedSharding || return " {sdy.sharding = <@mesh>}"
    entry(names) = "{" * join(("\"$name\"" for name in names if name !== nothing), ", ") * "}"
    entries = join(map(entry, reverse(s.partition_spec)), ", ")
    return " {sdy.sharding = #sdy.sharding<@mesh, [$entries]>}"
end

macro code_hlo(options...)
    return text_of(options, false)
end

macro code_xla(options...)
    return text_of(options, true)
end

function text_of(options, hlo)
    call = last(options)
    passes = QuoteNode(:none)
    for option in options[1:(end - 1)]
        option.args[1] === :shardy_passes && (passes = option.args[2])
    end
    arguments = Expr(:tuple, call.args[2:end]...)
    text = :(
        program_text($(esc(call.args[1])), $(esc(arguments)); shardy_passes = $passes, hlo = $hlo)
    )
    return hlo ? text : :(TextualModule($text))
end
