"""
Stands in for the binary package of LLVM.jl, whose preference libLLVMExtra names the library: it
must be built against the LLVM of the Julia that loads it (LLVM.jl, deps/build_local.jl).
"""
module LLVMExtra_jll

using Base.BinaryPlatforms: HostPlatform

const host_platform = HostPlatform()

is_available() = true

end
