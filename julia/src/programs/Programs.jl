"""
The Julia bodies of pyreactant's built-in programs, in the families of pyreactant/programs.

Axis i of a Python array is axis i here; indices from 0 become indices from 1 where they are used.
Arguments are Reactant's traced arrays.
"""
module Programs

using ..PyReactant: Reactant

include("common.jl")
include("products.jl")
include("reductions.jl")
include("layers.jl")
include("stencil.jl")
include("transforms.jl")
include("moves.jl")
include("perceptron.jl")
include("random.jl")

end
