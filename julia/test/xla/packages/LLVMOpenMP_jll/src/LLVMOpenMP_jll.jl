"Stands in for OpenMP's binary package: Reactant looks up five functions, which only kernels call."
module LLVMOpenMP_jll

using Reactant_jll: Reactant_jll

libomp_handle::Ptr{Cvoid} = C_NULL

is_available() = true

function __init__()
    global libomp_handle = Reactant_jll.libReactantExtra_handle
    return nothing
end

end
