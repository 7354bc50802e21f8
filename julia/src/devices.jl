"""The platform of this process, and its devices: (id, platform, kind, addressable)."""
mutable struct Started
    platform::String
    devices::Vector{Tuple{Int64, String, String, Bool}}
    here::Set{Int64}
end

const STARTED = Started("", [], Set{Int64}())

"""
    platform() -> "cpu", "gpu" or "tpu"
"""
platform() = STARTED.platform

"""
    devices() -> [(id, -1, platform, kind, addressable), ...]

All devices of the run by id; does not communicate. Reactant knows only whether a device belongs
to this process, not to which other one: Python replaces the -1.
"""
devices() = [(id, -1, name, kind, here) for (id, name, kind, here) in STARTED.devices]

"""Whether a device belongs to this process."""
is_local(id) = id in STARTED.here

"""
    start_platform(platform, num_cpu_devices) -> String

Start the devices of a platform, or of the best available one for "", and return its name. Never
takes another one instead. Collective.
"""
function start_platform(wanted::String, num_cpu_devices::Integer)
    runtime() == "IFRT" || throw(needs_ifrt("PyReactant"))
    say_cpu_devices(Int(num_cpu_devices))
    log = FailureLogger(Base.CoreLogging.current_logger(), String[])
    try
        Base.CoreLogging.with_logger(log) do
            without_python() do
                isempty(wanted) ? XLA.default_backend() : Reactant.set_default_backend(wanted)
            end
        end
    catch error
        throw(no_platform(wanted, [log.failures; sprint(showerror, error)]))
    end
    client = XLA.default_backend()
    found = platform_of(XLA.platform_name(client))
    # If a platform fails, Reactant logs it and takes the next one (Registration.jl:117-131).
    if (!isempty(wanted) && found != wanted) || !isempty(log.failures)
        throw(no_platform(wanted, [log.failures; "Reactant would run on $found"]))
    end
    list_devices(client, found)
    check_cpu_devices(Int(num_cpu_devices))
    return found
end

function no_platform(wanted, reasons)
    name = isempty(wanted) ? "a platform that is here" : "platform '$wanted'"
    return Wrong(
        "RequirementError",
        "$name could not be started: $(join(reasons, "; ")); see pyreactant doctor, or ask for " *
            "platform='cpu'",
    )
end

function platform_of(name::String)
    short = lowercase(name)
    return short in ("cuda", "rocm", "metal") ? "gpu" : short
end

"""A logger that passes every message on and records the platforms that failed."""
struct FailureLogger <: Base.CoreLogging.AbstractLogger
    parent::Base.CoreLogging.AbstractLogger
    failures::Vector{String}
end

# Errors arrive here even if the user's logger ignores them.
Base.CoreLogging.min_enabled_level(l::FailureLogger) = min(
    Base.CoreLogging.min_enabled_level(l.parent),
    Base.CoreLogging.Error,
)
Base.CoreLogging.catch_exceptions(::FailureLogger) = false
Base.CoreLogging.shouldlog(::FailureLogger, args...) = true

function Base.CoreLogging.handle_message(
    l::FailureLogger,
    level,
    message,
    group_module,
    group,
    id,
    file,
    line;
    kwargs...,
)
    if startswith(string(message), "Failed to initialize client")
        reason = get(kwargs, :exception, nothing)
        text = reason isa Tuple ? sprint(showerror, first(reason)) : ""
        push!(l.failures, rstrip("$message: $text", [':', ' ']))
    end
    at = (group_module, group, id)
    wanted = level >= Base.CoreLogging.min_enabled_level(l.parent)
    if wanted && Base.CoreLogging.shouldlog(l.parent, level, at...)
        Base.CoreLogging.handle_message(l.parent, level, message, at..., file, line; kwargs...)
    end
    return nothing
end

const CPU_DEVICES = "--xla_force_host_platform_device_count"

# XLA offers no other way; it reads the variable when its first client starts.
function say_cpu_devices(n::Int)
    flags = get(ENV, "XLA_FLAGS", "")
    if n > 0 && !occursin(CPU_DEVICES, flags)
        ENV["XLA_FLAGS"] = strip("$flags $CPU_DEVICES=$n")
    end
    return nothing
end

function check_cpu_devices(n::Int)
    found = length(STARTED.here)
    if n > 0 && STARTED.platform == "cpu" && found != n
        throw(Wrong(
            "StateError",
            "$n CPU devices were asked for, but this process has $found; XLA_FLAGS says " *
                "'$(get(ENV, "XLA_FLAGS", ""))', and XLA reads it only once",
        ))
    end
    return nothing
end

function list_devices(client, name::String)
    found = XLA.devices(client)
    rows = [
        (Int64(XLA.device_ordinal(d)), name, XLA.device_kind(d), Bool(XLA.is_addressable(d)))
        for d in found
    ]
    STARTED.platform = name
    STARTED.devices = sort!(rows)
    STARTED.here = Set(row[1] for row in rows if row[4])
    return nothing
end

"""
    runtime() -> "IFRT" or "PJRT"

The runtime that Reactant was built with; it reads the preference only then (xla/XLA.jl:17-19).
"""
runtime() = XLA.REACTANT_XLA_RUNTIME

"""
    versions() -> ((name, version), ...)
"""
function versions()
    found = Any[("julia", string(VERSION))]
    python = Base.get_extension(PyReactant, :PyReactantPythonCallExt)
    for m in (PyReactant, Reactant, (python === nothing ? () : (python.PythonCall,))...)
        version = pkgversion(m)
        version === nothing || push!(found, (string(nameof(m)), string(version)))
    end
    return Tuple(found)
end
