"""Reactant's traps: the code that avoids each, and the tests that fail without that code."""

from dataclasses import dataclass

JULIA = "julia/src/"
PORT = "{port}"
TWO = (("processes/two.jl", "0", PORT), ("processes/two.jl", "1", PORT))
FAILS = (("processes/gpu.jl", "fails"),)
WORKS = (("processes/gpu.jl", "works"),)


def files(*names: str) -> tuple[tuple[str, ...], ...]:
    """Arguments to run some files of julia/test/runtests.jl."""
    return (("runtests.jl", *names),)


@dataclass(frozen=True)
class Mutant:
    """The project without the code that avoids a trap.

    Attributes:
        trap: Behaviour of Reactant.
        file: File that contains the code.
        code: The code, which occurs once in the file.
        without: The replacement without the avoidance.
        runs: Julia files and their arguments, started together, of which one must fail; or the
            name of a pytest test.
        says: Message of the failure.
        gpu: Behaviour of the stand-in's GPU.
    """

    trap: str
    file: str
    code: str
    without: str
    runs: tuple[tuple[str, ...], ...] | str
    says: str
    gpu: str = ""


MUTANTS = [
    Mutant(
        "1 device order",
        JULIA + "meshes.jl",
        "Int64[searchsortedfirst(sorted, id) - 1 for id in devices]",
        "Int64[0:(length(devices) - 1);]",
        files("traps"),
        "whole(held) == x",
    ),
    Mutant(
        "1 the caller's ids are sorted",
        JULIA + "meshes.jl",
        "sorted = sort(devices)",
        "sorted = sort!(devices)",
        files("traps"),
        "right(held.array)",
    ),
    Mutant(
        "2 reading is collective",
        JULIA + "reading.jl",
        "    return without_python(read_part, part_of(x, id), x.type, dims, out)",
        "    parts = Tuple(UnitRange.(starts .+ 1, stops))\n"
        "    copyto!(out, Array(x.array)[parts...])\n    return nothing",
        TWO,
        "HiddenCollective",
    ),
    Mutant(
        "2 showing is collective",
        JULIA + "arrays.jl",
        'print(io, "Held($(element_name(x.type))$(collect(x.shape)) on $(x.sharding))")',
        "print(io, x.array)",
        TWO,
        "HiddenCollective",
    ),
    Mutant(
        "3 thunks check no shape",
        JULIA + "running.jl",
        "            x.shape == wanted.shape &&\n",
        "",
        files("traps"),
        '"nothing" == "InvalidArgumentError"',
    ),
    Mutant(
        "3 thunks check no sharding",
        JULIA + "running.jl",
        "            x.sharding == wanted.sharding &&\n",
        "            true &&\n",
        files("traps"),
        '"nothing" == "InvalidArgumentError"',
    ),
    Mutant(
        "3 the cache's key has the arguments",
        "pyreactant/arrays/runtimes/compile.py",
        "        call_.structure,\n        call_.avals,\n",
        "        call_.structure,\n",
        "tests/backend/test_programs.py::test_matmul_of_every_pair_of_specs",
        "compiled for",
    ),
    Mutant(
        "3 and static values",
        "pyreactant/arrays/runtimes/compile.py",
        ", _exact_key(tuple(options.items())))",
        ")",
        "tests/backend/test_trees.py::test_a_program_is_called",
        "Mismatched elements",
    ),
    Mutant(
        "4 what is left out is detected",
        JULIA + "distributed.jl",
        "                local_gpu_device_ids = Int[items(local_gpu_ids)...],\n",
        "",
        TWO,
        "cluster environment detector",
    ),
    Mutant(
        "4 no ids are no GPUs",
        JULIA + "distributed.jl",
        "Int[items(local_gpu_ids)...]",
        "Int[]",
        WORKS,
        "Evaluated: 0 == 2",
        gpu="works",
    ),
    Mutant(
        "5 jax is imported",
        "pyreactant/arrays/runtimes/reactant/julia.py",
        "        sys.modules[name] = None  # type",
        "        pass  # type",
        "tests/unit/test_reactant_start.py::test_jax_cannot_follow",
        "ModuleSpec(name='jax'",
    ),
    Mutant(
        "5 two XLAs in a process",
        "pyreactant/arrays/runtimes/reactant/julia.py",
        "    if loaded:\n",
        "    if False:\n",
        "tests/unit/test_reactant_start.py::test_starts_that_fail",
        "has imported jax and jaxlib",
    ),
    Mutant(
        "6 the device that is named is ignored",
        JULIA + "arrays.jl",
        "    buffer = XLA.IFRT.Array(client, data, XLA.get_device(client, id))\n",
        "    device = XLA.get_device(client, id)\n"
        "    return Reactant.ConcreteIFRTArray(data; device)\n",
        files("traps"),
        "XLA.device(held.array) == device",
    ),
    Mutant(
        "7 one port for both runtimes",
        "pyreactant/process/group/group.py",
        "zlib.crc32(run_id.encode())",
        'zlib.crc32(run_id.partition(".")[0].encode())',
        "tests/unit/test_process_group.py::test_steps_and_requeues_have_ports_of_their_own",
        "> 95",
    ),
    Mutant(
        "8 a CPU in a GPU's place",
        JULIA + "devices.jl",
        "(!isempty(wanted) && found != wanted) || !isempty(log.failures)",
        "false",
        FAILS,
        '"nothing" == "RequirementError"',
        gpu="fails",
    ),
    Mutant(
        "8 seen from Python",
        "pyreactant/arrays/runtimes/reactant/setup.py",
        "options.platform is not None and platform != options.platform",
        "False",
        "tests/unit/test_reactant_start.py::test_what_started_is_not_what_was_asked_for",
        "DID NOT RAISE",
    ),
    Mutant(
        "9 the timeout is ignored",
        "pyreactant/arrays/runtimes/reactant/setup.py",
        "            end_with(error)\n",
        "            pass\n",
        "tests/unit/test_reactant_rendezvous.py::test_wait_without_end_ends_with_a_message",
        "TimeoutExpired",
    ),
    Mutant(
        "10 a second runtime in the process",
        "pyreactant/arrays/runtimes/runtime.py",
        "    if differ:\n        asked_text",
        "    if False:\n        asked_text",
        "tests/backend/test_laws.py::test_bad_input",
        "DID NOT RAISE",
    ),
    Mutant(
        "lists in a spec",
        JULIA + "meshes.jl",
        "names_of(::DeviceMesh, entry) = throw(unfit_spec(entry))",
        "names_of(m::DeviceMesh, entry) = String[entry...]",
        files("traps"),
        '"write tuples, not lists", "nothing was thrown"',
    ),
    Mutant(
        "padding",
        JULIA + "meshes.jl",
        "n % cut == 0 && continue",
        "continue",
        files("traps"),
        '"" == "ShardingError"',
    ),
    Mutant(
        "the same array twice",
        JULIA + "lowering.jl",
        "Tuple(Any[placeholder(x) for x in inputs])",
        "ntuple(Returns(placeholder(first(inputs))), length(inputs))",
        files("traps"),
        "whole(result(c, X, y)) == whole(X) .- 1",
    ),
    Mutant(
        "a result that all devices have whole",
        JULIA + "compile.jl",
        "    shardy_passes = :none,\n",
        "",
        files("traps"),
        "must lie as",
    ),
    Mutant(
        "8-bit floats have no product",
        JULIA + "elements.jl",
        "    return x\n",
        '    return error("no type")\n',
        files("traps"),
        "no method matching mul!",
    ),
    Mutant(
        "results without elements are cut",
        JULIA + "meshes.jl",
        "    any(iszero, dims) && return ArraySharding(s.mesh, [String[] for _ in dims])\n",
        "",
        files("programs"),
        "Invalid dimension",
    ),
    Mutant(
        "the load path knows names only",
        JULIA + "names.jl",
        "    own !== nothing && own.name == top && return own\n",
        "",
        files("names"),
        "Evaluated: 4 == 5",
    ),
    Mutant(
        "two packages of one name",
        JULIA + "names.jl",
        "    check_alone(id, file)\n",
        "",
        files("names"),
        '"nothing" == "StateError"',
    ),
    Mutant(
        "source that has changed",
        JULIA + "names.jl",
        "    id == own_package(file) && check_source(id, found, file)\n",
        "",
        files("names"),
        '"nothing" == "StateError"',
    ),
    Mutant(
        "an argument that is a result",
        JULIA + "tracing.jl",
        "as_output(y::Reactant.TracedRArray) = copy(y)",
        "as_output(y::Reactant.TracedRArray) = y",
        files("traps"),
        "loses its sharding: Error",
    ),
    Mutant(
        "an argument that is written to",
        JULIA + "compile.jl",
        "if any(thunk.donated_args_mask)",
        "if false",
        files("traps"),
        '"programs are pure", "nothing was thrown"',
    ),
    Mutant(
        "a program that swaps its arguments",
        JULIA + "running.jl",
        "map(fresh, args)...",
        "map(x -> x.array, args)...",
        files("traps"),
        "(whole(X), whole(y)) == (before, ones(8, 8))",
    ),
    Mutant(
        "NaNs that lose their bits on the way",
        JULIA + "running.jl",
        "if x.type <: CrossingAsBits",
        "if false",
        files("arrays"),
        "as_numpy(out) == bits",
    ),
    Mutant(
        "bits that are made in the program that sends them",
        JULIA + "running.jl",
        "x = only(run(gathering(bits_of, x, x.sharding), x))",
        "return only(run(gathering(bits_of, x, ArraySharding(x.sharding.mesh, [[], []])), x))",
        files("arrays"),
        "as_numpy(out) == bits",
    ),
    Mutant(
        "slices in another order",
        JULIA + "arrays.jl",
        "    ids = sort(s.mesh.ids)\n    s.mesh.reactant === nothing && return Block[",
        "    ids = s.mesh.ids\n    s.mesh.reactant === nothing && return Block[",
        files("arrays"),
        "whole(held) == x",
    ),
    Mutant(
        "shards in ascending order",
        JULIA + "arrays.jl",
        "local_ids = filter(is_local, sort(s.mesh.ids))",
        "local_ids = filter(is_local, s.mesh.ids)",
        files("arrays"),
        "needs one block",
    ),
    Mutant(
        "a sort does not know NaN",
        JULIA + "programs/moves.jl",
        "Base.sort(x; dims = 2, lt = nan_last)",
        "Base.sort(x; dims = 2)",
        files("traps"),
        "sorted_by_us",
    ),
    Mutant(
        "precision is the compilation's",
        JULIA + "lowering.jl",
        "    return Reactant.with_config(f; dot_general_precision = chosen, "
        "convolution_precision = chosen)",
        "    return f()",
        files("programs"),
        "precision = [DEFAULT, DEFAULT]",
    ),
    Mutant(
        "numbers are frozen",
        JULIA + "tracing.jl",
        "as_argument(x::AbstractArray{<:Any, 0}) = x[]",
        "as_argument(x::AbstractArray{<:Any, 0}) = x",
        files("traps"),
        "frozen: Error",
    ),
    Mutant(
        "pointers while arrays are put together",
        JULIA + "arrays.jl",
        "    was = GC.enable(false)\n",
        "    was = true\n",
        files("traps"),
        "was freed while",
    ),
]
