# Clients start at the first use of a device. STANDIN_REACTANT_GPU pretends that there is a GPU:
# "works" starts it, "fails" is the driver that does not load.
@eval XLA begin
    const LOCAL_GPU_IDS = Ref{Union{Nothing, Vector{Int}}}(nothing)

    mutable struct BackendState
        initialized::Bool
        clients::Dict{String, Client}
        default_client::Union{Nothing, Client}
    end

    const global_backend_state = BackendState(false, Dict(), nothing)

    function Base.getproperty(state::BackendState, name::Symbol)
        (name === :initialized || getfield(state, :initialized)) && return getfield(state, name)
        initialize_default_clients!(state, nothing)
        return getfield(state, name)
    end

    default_backend() = global_backend_state.default_client
    default_device() = default_device(default_backend())
    process_index() = process_index(default_backend())

    function set_default_backend(name::String)
        wanted = name == "gpu" ? ["cuda", "metal", "rocm"] : [name]
        state = global_backend_state
        if !getfield(state, :initialized) || !any(haskey(state.clients, w) for w in wanted)
            initialize_default_clients!(state, wanted)
        end
        found = filter(w -> haskey(state.clients, w), wanted)
        isempty(found) && error("No $(uppercase(name)) client found")
        state.default_client = state.clients[first(found)]
        return nothing
    end

    # By priority; a platform that fails is logged, and the next one is the default.
    function initialize_default_clients!(state, wanted)
        state.initialized = true
        started = String[]
        for name in (haskey(ENV, "STANDIN_REACTANT_GPU") ? ["cuda", "cpu"] : ["cpu"])
            wanted === nothing || name in wanted || continue
            try
                state.clients[name] = make_client(name)
                push!(started, name)
            catch err
                @error "Failed to initialize client: $name" exception = (err, catch_backtrace())
            end
        end
        @assert !isempty(started) "No functional client was found."
        state.default_client = state.clients[first(started)]
        return nothing
    end

    function make_client(name)
        state = $Coordinator.STATE
        if name == "cuda"
            ENV["STANDIN_REACTANT_GPU"] == "works" || error("CUDA_ERROR_NO_DEVICE")
            ids = something(LOCAL_GPU_IDS[], [0]) # an empty list is no GPU at all
        else
            flag = match(r"--xla_force_host_platform_device_count=(\d+)", get(ENV, "XLA_FLAGS", ""))
            ids = 0:((flag === nothing ? 1 : parse(Int, flag[1])) - 1)
        end
        # Every process must ask for its devices: each is told all.
        counts = $Coordinator.allgather("devices of $name", length(ids))
        client = Client(name == "cuda" ? "CUDA" : "cpu", state.index, Device[])
        for (process, count) in enumerate(counts), i in 0:(count - 1)
            first_id = name == "cuda" ?
                sum(counts[1:(process - 1)]; init = 0) :
                (process - 1) * 2048
            push!(client.devices, Device(first_id + i, process - 1, name, client))
        end
        return client
    end
end

set_default_backend(name::String) = XLA.set_default_backend(name)
devices(client = XLA.default_backend()) = XLA.devices(client)
addressable_devices(client = XLA.default_backend()) = XLA.addressable_devices(client)
