"""NumPy's names of the element types, each with Julia's type for Reactant."""
const ELEMENTS = Dict{String, DataType}(
    "bool" => Bool,
    "int8" => Int8,
    "int16" => Int16,
    "int32" => Int32,
    "int64" => Int64,
    "uint8" => UInt8,
    "uint16" => UInt16,
    "uint32" => UInt32,
    "uint64" => UInt64,
    "float16" => Float16,
    "float32" => Float32,
    "float64" => Float64,
    "complex64" => ComplexF32,
    "complex128" => ComplexF64,
    "bfloat16" => Reactant.BFloat16,
    "float8_e5m2" => Reactant.F8E5M2,
    "float8_e4m3fn" => Reactant.F8E4M3FN,
    "float8_e4m3b11fnuz" => Reactant.F8E4M3B11FNUZ,
    "float8_e5m2fnuz" => Reactant.F8E5M2FNUZ,
    "float8_e4m3fnuz" => Reactant.F8E4M3FNUZ,
)

const ELEMENT_NAMES = Dict{DataType, String}(type => name for (name, type) in ELEMENTS)

"""Julia's element type for one of NumPy's names."""
function element_type(name::String)
    haskey(ELEMENTS, name) && return ELEMENTS[name]
    throw(Wrong(
        "DTypeError",
        "dtype $name is not held by Reactant; convert the array to one of " *
            join(sort!(collect(keys(ELEMENTS))), ", "),
    ))
end

"""NumPy's name of Julia's element type."""
function element_name(type::Type)
    haskey(ELEMENT_NAMES, type) && return ELEMENT_NAMES[type]
    throw(Wrong(
        "InvalidArgumentError",
        "the Julia function returned elements of type $type, which NumPy does not have; " *
            "convert them to one of $(join(sort!(collect(keys(ELEMENTS))), ", "))",
    ))
end

# Reactant asks Julia for the type of a product of two elements before it writes a product of
# matrices (stdlibs/LinearAlgebra.jl:264), and without this method Julia finds none for floats of
# 8 bits.
function Base.:*(x::T, ::T) where {T <: Reactant.ReactantFloat8}
    Base.inferencebarrier(true) && error("$T is multiplied in compiled programs only")
    return x
end
