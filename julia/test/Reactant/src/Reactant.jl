"""
A stand-in for Reactant.jl, whose binaries cannot be fetched everywhere: the documented signatures
that PyReactant uses, and every trap that a caller of the real one falls into. A function is called
once, with traced arrays that record their operations; programs compute these with plain arrays.
What cannot be recorded fails. Several processes are real processes with a TCP coordinator.

Written from Reactant's behaviour, not from its text; julia/test compares the placement arithmetic
with the original's. What is here only for tests: COMPILATIONS, IMPORTED, EVERY_PROCESS_CALLS,
COLLECTS, ELSEWHERE.
"""
module Reactant

using LinearAlgebra: LinearAlgebra # products of arrays
using Preferences: load_preference
using UUIDs: UUID

"""How often anything was compiled."""
const COMPILATIONS = Ref(0)

"""What the Python extension imported."""
const IMPORTED = String[]

"""Said by tests in which every process converts or shows an array at the same time."""
const EVERY_PROCESS_CALLS = Ref(false)

"""Where the real one would wait for ever for the other processes."""
struct HiddenCollective <: Exception
    what::String
end

function Base.showerror(io::IO, error::HiddenCollective)
    return print(
        io,
        "HiddenCollective: $(error.what) of an array on several processes runs a program on " *
            "all of them; the real Reactant hangs here unless every process does it",
    )
end

"""The functions that are being traced: none, because Julia itself calls them here."""
module Compiler
    debugcache() = @NamedTuple{f_name::String, file::String, line::Int64}[]
end

include("elements.jl")
include("xla.jl")
include("sharding.jl")
include("coordinator.jl")
include("distributed.jl")
include("clients.jl")
include("arrays.jl")
include("configuration.jl")
include("traced.jl")
include("numbers.jl")
include("operations.jl")
include("ops.jl")
include("compile.jl")
include("writing.jl")
include("text.jl")

end
