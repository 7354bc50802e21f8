"""
    initialize() -> (num_processes, process_index)

Join the other processes of a run that `pyreactant run -- julia SCRIPT` started, and start the
platform. Collective. A Julia program calls it before anything else uses Reactant; the processes,
devices and platform are those of the supervisor's variables, which Reactant gets as explicit
arguments.

```julia
using PyReactant, Reactant
num_processes, process_index = PyReactant.initialize()
```
"""
function initialize()
    count = launched_number("PYREACTANT_NUM_PROCESSES", nothing)
    index = launched_number("PYREACTANT_PROCESS_INDEX", 0)
    num_cpu_devices = launched_number("PYREACTANT_NUM_CPU_DEVICES", 0)
    say_cpu_devices(num_cpu_devices)
    if count > 1
        address = get(ENV, "PYREACTANT_COORDINATOR_ADDRESS", "")
        isempty(address) && throw(not_launched("PYREACTANT_COORDINATOR_ADDRESS"))
        gpus = Tuple(
            parse.(Int, split(get(ENV, "PYREACTANT_LOCAL_DEVICE_IDS", ""), ','; keepempty = false)),
        )
        initialize(
            address,
            count,
            index,
            gpus,
            length(gpus) == 1,
            is_loopback(address) ? address : "", # otherwise all interfaces
            LAUNCHED_START,
            launched_heartbeat(),
        )
    end
    start_platform(get(ENV, "PYREACTANT_PLATFORM", ""), num_cpu_devices)
    return count, index
end

"""Seconds for all processes to start Julia and join; without a setup each compiles packages."""
const LAUNCHED_START = 900

"""Seconds: later than the supervisor's limit, because that names the silent process."""
launched_heartbeat() = launched_number("PYREACTANT_STALL_TIMEOUT", 300) + 60

is_loopback(address) = any(x -> startswith(address, x), ("127.", "localhost:", "[::1]:"))

function launched_number(name::String, default)
    text = get(ENV, name, "")
    if isempty(text)
        default === nothing && throw(not_launched(name))
        return default
    end
    number = tryparse(Float64, text)
    number === nothing &&
        throw(Wrong("InvalidArgumentError", "$name must be a number, got '$text'"))
    return ceil(Int, number)
end

function not_launched(name)
    return Wrong(
        "StateError",
        "PyReactant.initialize() takes its processes from the supervisor, but $name is not set; " *
            "start the program with: pyreactant run -- julia SCRIPT",
    )
end
