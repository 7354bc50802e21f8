"""A program as text."""
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

# What computes more than `writing.jl` knows is one call of a name that no compiler has.
const NOT_WRITTEN = "the_stand_in_for_reactant_cannot_write_this_program"

"""
A program as StableHLO in Reactant's form: tensors have reversed sizes at the module's ends, with
transposes between these and the program, and each mesh that a sharding names stands at the top.
"""
function program_text(@nospecialize(f), args::Vector{Any}, program::Program; hlo = false)
    arrays = [x for x in unique(objectid, args) if x isa ConcreteIFRTArray]
    writing = Writing([], [])
    inputs = map(enumerate(arrays)) do (i, x)
        shape = tensor(eltype(x), reverse(size(x)))
        return "%arg$(i - 1): $shape$(sharding_text(writing, x))"
    end
    written = all(is_written, program.values)
    results = (written ? write_results : call_results)(writing, program, args)
    meshes = [x.sharding.mesh for x in arrays if Sharding.is_sharded(x.sharding)]
    n = maximum(length, meshes; init = 1)
    types = join(map(tensor, results), ", ")
    lines = [
        (hlo ? "HloModule" : "module @") *
            "reactant_$f attributes " *
            "{mhlo.num_partitions = $n : i64, mhlo.num_replicas = 1 : i64} {"
        "  " .* mesh_lines(writing.meshes)
        "  func.func @main($(join(inputs, ", "))) -> ($types) {"
        "    " .* writing.lines
        "    return $(join((y.name for y in results), ", ")) : $types"
        "  }"
        "}"
    ]
    return join(lines, "\n") * "\n"
end

"""
Results that come out of a call instead of the program. A digest of what it computes stands for the
program: another program has another text.
"""
function call_results(writing::Writing, program::Program, args)
    digest = string(digest_of(program, args); base = 16)
    arrays = [x for x in unique(objectid, args) if x isa ConcreteIFRTArray]
    names = join(("%arg$(i - 1)" for i in eachindex(arrays)), ", ")
    types = join((tensor(eltype(x), reverse(size(x))) for x in arrays), ", ")
    return map(program.results) do v
        T, shape = v.type, reverse(v.shape)
        config = "{backend_config = \"$digest\"}"
        operands = "@$NOT_WRITTEN($names) $config : ($types) -> $(tensor(T, shape))"
        write_down(writing, T, shape, "stablehlo.custom_call $operands")
    end
end

"""
Of what each value is computed from, and of the results for numbers that differ; for ones if the
program does not take those. All arguments of a size have the same numbers.
"""
function digest_of(program::Program, args)
    results = try
        compute(program, Any[varied(x) for x in args])
    catch
        compute(program, Any[ones_for(x) for x in args])
    end
    at = IdDict{Value, Int}(v => i for (i, v) in enumerate(program.values))
    positions(values) = Int[at[v] for v in values]
    digest = hash(positions(program.results))
    for v in program.values
        digest = hash(number_of(v), hash(positions(v.operands), digest))
    end
    for y in results
        kind = "$(eltype(y))$(size(y))"
        digest = hash(kind, hash(String(reinterpret_bits(y)), digest))
    end
    return digest
end

reinterpret_bits(x::Array) = isempty(x) ? UInt8[] : copy(reinterpret(UInt8, vec(x)))

ones_for(x) = x
ones_for(x::ConcreteIFRTArray{T}) where {T} = fill(unit(T), size(x))

varied(x) = x
function varied(x::ConcreteIFRTArray{T, N}) where {T, N}
    T <: ReactantFloat8 && return ones_for(x)
    return reshape(T[T(mod(7i, 5) + 1) for i in 1:length(x)], size(x))
end
varied(x::ConcreteIFRTArray{Bool}) = reshape(Bool[isodd(i) for i in 1:length(x)], size(x))

function sharding_text(writing::Writing, x)
    Sharding.is_sharded(x.sharding) || return ""
    s = Sharding.unwrap_shardinfo(x.sharding)
    return " {sdy.sharding = #sdy.sharding$(shardy_text(writing, s, true))}"
end

macro code_hlo(options...)
    return text_of(options, false)
end

macro code_xla(options...)
    return text_of(options, true)
end

function text_of(options, hlo)
    call = last(options)
    arguments = Expr(:tuple, call.args[2:end]...)
    text = :(traced_text($(esc(call.args[1])), $(esc(arguments)); hlo = $hlo))
    return hlo ? text : :(TextualModule($text))
end

function traced_text(@nospecialize(f), @nospecialize(args::Tuple); hlo)
    given = Any[args...]
    return program_text(f, given, Program(trace(f, given)); hlo)
end
