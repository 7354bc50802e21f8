module ReactantPythonCallExt

using PythonCall: pyimport
using Reactant: Reactant

# Loading the real extension imports both; two copies of XLA in a process are then one import away.
function __init__()
    for name in ("jax", "tensorflow")
        try
            pyimport(name)
            push!(Reactant.IMPORTED, name)
        catch error
            said = (error, catch_backtrace())
            @warn "Failed to import $name. What needs it won't be supported." exception = said
        end
    end
    return nothing
end

end
