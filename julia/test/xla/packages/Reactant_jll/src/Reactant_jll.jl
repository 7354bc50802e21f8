"Stands in for Reactant's binary package: the library that julia/test/xla/build.sh builds."
module Reactant_jll

using Libdl: Libdl

# By this name the loaded library is found again; its path may change without compiling anew.
const libReactantExtra = "libReactantExtra.so"
const host_platform = (; tags = Dict("arch" => "x86_64", "os" => "linux", "gpu" => "none"))

libReactantExtra_path::String = ""
libReactantExtra_handle::Ptr{Cvoid} = C_NULL

is_available() = true

function __init__()
    global libReactantExtra_path = get(ENV, "PYREACTANT_TEST_XLA_LIBRARY", "")
    isempty(libReactantExtra_path) &&
        error("PYREACTANT_TEST_XLA_LIBRARY must be the path of $libReactantExtra")
    global libReactantExtra_handle = Libdl.dlopen(libReactantExtra_path)
    return nothing
end

end
