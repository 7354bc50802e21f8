# The naive caller's way to wait one second at most.
include("common.jl")
println("waiting")
flush(stdout)
Reactant.Distributed.initialize(;
    coordinator_address = "127.0.0.1:$(ARGS[1])",
    num_processes = 2,
    process_id = 0,
    local_gpu_device_ids = Int[],
    initialization_timeout_in_seconds = 1,
)
