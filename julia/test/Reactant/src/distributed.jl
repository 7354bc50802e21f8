module Distributed

using ..Reactant: Coordinator, XLA

const initialized = Ref(false)

is_initialized() = initialized[]
local_rank() = Coordinator.STATE.index # the global one, whatever its name says
num_processes() = Coordinator.STATE.size

function initialize(;
    coordinator_address::Union{Nothing, String} = nothing,
    num_processes::Union{Nothing, Integer} = nothing,
    process_id::Union{Nothing, Integer} = nothing,
    single_gpu_per_process::Bool = true,
    local_gpu_device_ids::Union{Nothing, Vector{Int}} = nothing,
    initialization_timeout_in_seconds::Integer = 300, # reaches nobody
    kwargs...,
)
    if XLA.REACTANT_XLA_RUNTIME == "PJRT"
        @warn "Attempting to using Reactant Distributed functionality with PJRT runtime."
    end
    @assert !initialized[] "`Distributed.initialize` has already been called"
    said = (coordinator_address, num_processes, process_id, local_gpu_device_ids)
    any(isnothing, said) &&
        error(
            "Couldn't find a functional cluster environment detector. Attempted to use: \
         [SlurmEnvDetector(), OpenMPIORTEEnvDetector(), MPIEnvDetector()]",
        )
    update!(; coordinator_address, num_processes, process_id, local_gpu_device_ids, kwargs...)
    initialized[] = true
    return nothing
end

function update!(;
    coordinator_address::String,
    num_processes::Int,
    process_id::Int,
    local_gpu_device_ids::Vector{Int},
    coordinator_bind_address::Union{Nothing, String} = nothing,
    cluster_register_timeout_in_minutes::Integer = -1,
    rpc_timeout_in_seconds::Integer = -1,
    shutdown_timeout_in_minutes::Integer = -1,
    heartbeat_interval_in_seconds::Integer = -1,
    use_compression::Bool = true,
)
    @assert 0 <= process_id < num_processes
    XLA.LOCAL_GPU_IDS[] = local_gpu_device_ids
    proxies = filter(Base.Fix1(occursin, "_proxy") ∘ lowercase, collect(keys(ENV)))
    isempty(proxies) || @warn "Reactant detected proxy variable(s): $(join(proxies, ", "))"
    Coordinator.connect(coordinator_address, num_processes, process_id, coordinator_bind_address)
    return nothing
end

end
