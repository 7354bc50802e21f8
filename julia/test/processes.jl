# What needs a process of its own, or several: each a file of processes/, run by this Julia.
using Sockets: Sockets

"""A process of this Julia, with the same packages; gives it and the file of what it says."""
function start(file, args...; settings...)
    code = joinpath(@__DIR__, "processes", file)
    log = tempname()
    command = addenv(
        `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) $code $args`,
        (string(name) => value for (name, value) in settings)...
    )
    process = open(log, "w") do io
        Base.run(pipeline(ignorestatus(command); stdout = io, stderr = io); wait = false)
    end
    return process, log
end

function finish((process, log), seconds = 240)
    late = timedwait(() -> process_exited(process), seconds; pollint = 0.1) === :timed_out
    late && kill(process, Base.SIGKILL)
    wait(process)
    return process.exitcode, read(log, String), late
end

function free_port()
    port, server = Sockets.listenany(Sockets.IPv4(0), 20000 + getpid() % 20000)
    close(server)
    return Int(port)
end

flags(n) = "--xla_force_host_platform_device_count=$n"

@testset "two processes" begin
    port = free_port()
    started = [start("two.jl", i, port; XLA_FLAGS = flags(2)) for i in 0:1]
    for (code, said, late) in map(finish, started)
        @test (code, late) == (0, false)
        @test occursin("all is well", said) || (println(said); false)
    end
end

@testset "two processes that the supervisor tells who they are" begin
    port = free_port()
    # The XLA_FLAGS of this process ask for another number of devices.
    started = [
        start(
            "launched.jl";
            PYREACTANT_NUM_PROCESSES = "2",
            PYREACTANT_PROCESS_INDEX = string(i),
            PYREACTANT_COORDINATOR_ADDRESS = "127.0.0.1:$port",
            PYREACTANT_NUM_CPU_DEVICES = "2",
            PYREACTANT_PLATFORM = "cpu",
            XLA_FLAGS = "",
        )
        for i in 0:1
    ]
    for (code, said, late) in map(finish, started)
        @test (code, late) == (0, false)
        @test occursin("all is well", said) || (println(said); false)
    end
end

@testset "9: the timeout reaches nobody" begin
    waiting = start("alone.jl", free_port())
    @test timedwait(() -> occursin("waiting", read(waiting[2], String)), 120) === :ok
    _, _, late = finish(waiting, 4) # it had said one second
    @test late
    # ours: pyreactant/arrays/runtimes/reactant/meeting.py has a deadline
end

@testset "8: a GPU that fails is a CPU" begin
    code, said, _ = finish(start(
        "gpu.jl",
        "fails";
        STANDIN_REACTANT_GPU = "fails",
        XLA_FLAGS = flags(2),
    ))
    @test code == 0 || (println(said); false)
end

@testset "4b: no GPU ids are no GPUs, and the ids given are those used" begin
    code, said, _ = finish(start("gpu.jl", "works"; STANDIN_REACTANT_GPU = "works"))
    @test code == 0 || (println(said); false)
end

@testset "the preference is read when Reactant is precompiled" begin
    folder = mktempdir()
    uuid = "3c362404-f566-11ee-1572-e11a4b42c853"
    write(
        joinpath(folder, "Project.toml"),
        """
    [extras]
    Reactant = "$uuid"

    [preferences.Reactant]
    xla_runtime = "PJRT"
    """,
    )
    path = join((folder, LOAD_PATH...), Sys.iswindows() ? ";" : ":")
    code, said, _ = finish(start("pjrt.jl"; JULIA_LOAD_PATH = path, XLA_FLAGS = flags(4)))
    @test code == 0 || (println(said); false)
end

@testset "5: the extension imports jax where it can" begin
    folder = mktempdir()
    for name in ("jax", "tensorflow")
        write(joinpath(folder, "$name.py"), "loaded = True\n")
    end
    code, said, _ = finish(start("imports.jl"; PYTHONPATH = folder))
    @test code == 0 || (println(said); false)
end
