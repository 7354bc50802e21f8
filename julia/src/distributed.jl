"""
    initialize(address, num_processes, process_index, local_gpu_ids, single_gpu_per_process, bind,
               initialization_timeout, heartbeat_timeout)

Join the other processes of the run, before any device is used. Collective. Python has checked that
all of them are ready, because XLA would wait without end: `initialization_timeout_in_seconds` is
not passed on (Distributed.jl:198-205, xla/Distributed.jl:141-153). `local_gpu_ids` are the GPUs of
this process, possibly none. Process 0 listens on `bind`, "" for all interfaces.
"""
function initialize(
    address::String,
    num_processes::Integer,
    process_index::Integer,
    @nospecialize(local_gpu_ids::Tuple),
    single_gpu_per_process::Bool,
    bind::String,
    initialization_timeout::Real,
    heartbeat_timeout::Real,
)
    refuse_a_late_start()
    try
        without_python() do
            # All four are given: if one is missing, Reactant asks its cluster detectors for the
            # rest and fails without a cluster (Distributed.jl:116-127).
            Reactant.Distributed.initialize(;
                coordinator_address = address,
                num_processes = Int(num_processes),
                process_id = Int(process_index),
                local_gpu_device_ids = Int[items(local_gpu_ids)...],
                single_gpu_per_process,
                coordinator_bind_address = isempty(bind) ? nothing : bind,
                cluster_register_timeout_in_minutes = ceil(Int, initialization_timeout / 60),
                # It is named an interval, but it sets the timeout (API.cpp:2913).
                heartbeat_interval_in_seconds = ceil(Int, heartbeat_timeout),
                shutdown_timeout_in_minutes = 1,
            )
        end
    catch error
        throw(Wrong(
            "RendezvousError",
            "Reactant's rendezvous of $num_processes processes at $address failed on process " *
                "$process_index: $(sprint(showerror, error))",
        ))
    end
    return nothing
end

function refuse_a_late_start()
    runtime() == "IFRT" || throw(needs_ifrt("a run of several processes"))
    if Reactant.Distributed.is_initialized()
        throw(Wrong("StateError", "this process is part of a run already"))
    end
    if XLA.global_backend_state.initialized
        throw(Wrong(
            "StateError",
            "devices of Reactant were used before the processes joined; call " *
                "pyreactant.initialize() before anything else",
        ))
    end
    return nothing
end

function needs_ifrt(what)
    return Wrong(
        "RequirementError",
        "$what needs Reactant's runtime IFRT, but Reactant was built with $(runtime()); run: " *
            "pyreactant prefs set xla_runtime IFRT, and start again",
    )
end
