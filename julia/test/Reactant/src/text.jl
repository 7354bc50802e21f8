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

# What computes more than `symbolic.jl` knows is one call of a name that no compiler has.
const NOT_WRITTEN = "the_stand_in_for_reactant_cannot_write_this_program"

"""
A program as StableHLO in Reactant's form: tensors have reversed sizes at the module's ends, with
transposes between these and the program, and each mesh that a sharding names stands at the top.
"""
function program_text(f, args::Tuple; hlo = false)
    arrays = [x for x in unique(objectid, args) if x isa ConcreteIFRTArray]
    writing = Writing([], [])
    before, WRITING[] = WRITING[], writing
    try
        inputs = map(enumerate(arrays)) do (i, x)
            "%arg$(i - 1): $(tensor(eltype(x), reverse(size(x))))$(sharding_text(x))"
        end
        results = @something symbolic_results(f, args) called_results(f, args)
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
    finally
        WRITING[] = before
    end
end

"""The program's results; nothing where it does what is not known here."""
function symbolic_results(f, args)
    number = Ref(-1)
    try
        inputs = Any[x isa ConcreteIFRTArray ? entering(x, number[] += 1) : x for x in args]
        found = f(inputs[aliases(args)]...)
        return map(leaving, found isa Tuple ? found : (found,))
    catch
        empty!(WRITING[].lines)
        return nothing
    end
end

function entering(x::ConcreteIFRTArray{T, N}, number) where {T, N}
    return turned(Symbolic{T, N}(reverse(size(x)), "%arg$number"))
end

leaving(x::Symbolic) = turned(x)
leaving(_) = throw(NotWritten())

"""
Results that come out of a call instead of the program. A digest of what it computes stands for the
program: another program has another text.
"""
function called_results(f, args)
    found = f(map(sample, args)...)
    digest = string(digest_of(f, args, found); base = 16)
    arrays = [x for x in args if x isa ConcreteIFRTArray]
    names = join(("%arg$(i - 1)" for i in eachindex(arrays)), ", ")
    types = join((tensor(eltype(x), reverse(size(x))) for x in arrays), ", ")
    return map(found isa Tuple ? found : (found,)) do y
        T, shape = eltype(y), reverse(size(y))
        config = "{backend_config = \"$digest\"}"
        operands = "@$NOT_WRITTEN($names) $config : ($types) -> $(tensor(T, shape))"
        write_down(T, shape, "stablehlo.custom_call $operands")
    end
end

"""Of a program's results for numbers that differ; for ones if it does not take those."""
function digest_of(f, args, found)
    results = try
        f(map(varied, args)...)
    catch
        found
    end
    digest = UInt(0)
    for y in (results isa Tuple ? results : (results,))
        array = y isa AbstractArray ? collect(y) : fill(y)
        kind = "$(eltype(array))$(size(array))"
        digest = hash(kind, hash(String(reinterpret_bits(array)), digest))
    end
    return digest
end

varied(x) = x
function varied(x::ConcreteIFRTArray{T, N}) where {T, N}
    T <: ReactantFloat8 && return sample(x)
    return reshape(T[T(mod(7i, 5) + 1) for i in 1:length(x)], size(x))
end
varied(x::ConcreteIFRTArray{Bool}) = reshape(Bool[isodd(i) for i in 1:length(x)], size(x))

function sharding_text(x)
    Sharding.is_sharded(x.sharding) || return ""
    s = Sharding.unwrap_shardinfo(x.sharding)
    return " {sdy.sharding = #sdy.sharding$(shardy_text(s, true))}"
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
    text = :(program_text($(esc(call.args[1])), $(esc(arguments)); hlo = $hlo))
    return hlo ? text : :(TextualModule($text))
end
