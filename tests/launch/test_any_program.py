"""Programs that do not use pyreactant under `pyreactant run`: plain JAX, Julia, any command."""

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyreactant.process import progress as counted
from pyreactant.process.supervised import link, plain_jax
from pyreactant.process.supervised.command import warned_by_slurm
from tests.gloo import without_gloo
from tests.harness import QUICK_COMPILING, environment
from tests.launch.runs import Run, ended, left_behind, popen, run_local, script, until

PLAIN = Path(__file__).parent / "plain"


def run_plain(folder: Path, name: str, *arguments: str) -> Run:
    options = ("-n", "2", "--devices-per-process", "2", "--all-output")
    program = [str(PLAIN / f"{name}.py"), *arguments]
    settings = {"XLA_FLAGS": QUICK_COMPILING}
    run = run_local(folder, *options, "--", *program, settings=settings, timeout=240)
    assert run.code == 0, run
    assert run.report["cause"] == "done"
    return run


def test_a_program_in_the_style_of_maxtext(tmp_path: Path) -> None:
    run = run_plain(tmp_path, "maxtext_style")
    losses = set()
    for index in range(2):
        lines = run.log(index).decode().splitlines()
        assert f"maxtext {index}/2 devices 4" in lines
        losses |= {line for line in lines if line.startswith("loss ")}
    assert len(losses) == 1


def test_a_program_in_the_style_of_levanter(tmp_path: Path) -> None:
    run = run_plain(tmp_path, "levanter_style")
    for index in range(2):
        assert f"levanter {index}/2 gathered [0, 1]\n" in without_gloo(run.log(index).decode())
    assert [p["phase"] for p in run.report["processes"]] == ["exited"] * 2


def test_a_program_in_the_style_of_flax(tmp_path: Path) -> None:
    run = run_plain(tmp_path, "flax_style", "--steps", "3")
    assert "flax 2 processes 3 steps " in run.log(0).decode()
    assert "flax 2" not in run.log(1).decode()
    assert "all 2 initialized after" in run.finished[0].log


SHOWS = """
import json, os, sys
json.dump({k: v for k, v in os.environ.items() if k.startswith(("JAX_", "JULIA", "PYREACTANT_"))},
          open(f"seen-{os.environ['PYREACTANT_PROCESS_INDEX']}.json", "w"))
"""


def test_any_command_gets_our_variables_and_the_same_end(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text(f"#!{sys.executable}\n{SHOWS}\nprint(sys.argv[1:])\n")
    (tmp_path / "tool").chmod(0o755)
    run = run_local(tmp_path, "-n", "2", "--platform", "cpu", "--", "./tool", "a b", "-m")
    assert run.code == 0, run
    for index in range(2):
        assert run.log(index) == b"['a b', '-m']\n"
        seen = json.loads((tmp_path / f"seen-{index}.json").read_text())
        assert seen["PYREACTANT_PROCESS_INDEX"] == str(index)
        assert seen["PYREACTANT_NUM_PROCESSES"] == "2"
        assert seen["PYREACTANT_COORDINATOR_ADDRESS"].startswith("127.0.0.1:")
        assert seen["JAX_PLATFORMS"] == "cpu"
        assert "PYREACTANT_SUPERVISOR_FDS" not in seen
    assert run.report["command"] == ["./tool", "a b", "-m"]


def test_a_command_that_fails_ends_the_others(tmp_path: Path) -> None:
    text = (
        'echo "$PYREACTANT_PROCESS_INDEX"; [ "$PYREACTANT_PROCESS_INDEX" = 0 ] || exit 9; sleep 99'
    )
    run = run_local(tmp_path, "-n", "2", "--", "sh", "-c", text)
    assert run.code == 1
    assert "process 1 on" in run.report["summary"]
    assert "ended with exit code 9" in run.report["summary"]
    assert run.report["first_error"]["log_tail"] == "1\n"
    assert not left_behind(tmp_path)


def test_a_command_dies_with_its_supervisor(tmp_path: Path) -> None:
    with popen(tmp_path, "--", "sh", "-c", "echo $$ > pid; exec sleep 1000") as run:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), run)
        os.kill(run.pid, signal.SIGKILL)
        run.wait(60)
    until(lambda: not left_behind(tmp_path))


def test_a_shell_script_traps_a_warning(tmp_path: Path) -> None:
    """It could not if it began with the signal ignored."""
    text = "trap 'echo warned; exit' USR1; touch ready; while :; do sleep 0.05; done"
    with popen(tmp_path, "--", "sh", "-c", text) as run:
        until((tmp_path / "ready").exists, run)
        run.send_signal(signal.SIGUSR1)
        assert ended(run, tmp_path)[0] == 0
    assert (tmp_path / "run" / "process-0.log").read_text() == "warned\n"


@pytest.mark.parametrize(
    ("job", "groups", "warned"),
    [
        (None, "0::/user.slice\n", False),
        ("5", "0::/user.slice\n", True),
        ("5", "", True),
        ("5", "0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0\n", False),
        ("5", "4:freezer:/slurm/uid_1000/job_5/step_batch\n0::/\n", False),
        ("5", "4:memory:/slurm/uid_1000/job_5\n", True),
    ],
)
def test_slurm_warns_every_process_of_a_step_without_control_group(
    job: str | None, groups: str, warned: bool
) -> None:
    assert warned_by_slurm({"SLURM_JOB_ID": job} if job else {}, groups) is warned


def test_python_before_the_script_and_its_options(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text("import sys; print(sys.argv[1:], sys.flags.optimize)")
    python = Path(sys.executable).name
    run = run_local(tmp_path, "--", python, "-O", "-W", "ignore", "shows.py", "-O")
    assert run.log(0) == b"['-O'] 1\n", run
    assert run.report["processes"][0]["phase"] == "exited"


def test_python_code_on_the_command_line(tmp_path: Path) -> None:
    text = (
        "import sys, pyreactant.process.supervised as s; print(sys.argv, bool(s.connection)); 1 / 0"
    )
    run = run_local(tmp_path, "--", sys.executable, "-c", text, "x")
    assert run.log(0).startswith(b"['-c', 'x'] True\n"), run
    assert "raised ZeroDivisionError" in run.report["summary"]


def test_a_julia_program_finds_our_package(tmp_path: Path) -> None:
    """The executable is a stand-in that shows what Julia would read."""
    julia = tmp_path / "bin" / "julia"
    julia.parent.mkdir()
    julia.write_text(f"#!{sys.executable}\n{SHOWS}\nprint(sys.argv[1:])\n")
    julia.chmod(0o755)
    settings = {
        "PATH": f"{julia.parent}:{os.environ['PATH']}",
        "JULIA_LOAD_PATH": "@:/mine",
        "PYTHON_JULIACALL_EXE": str(julia),  # as `pyreactant setup` would record them
        "PYTHON_JULIACALL_PROJECT": str(tmp_path),
    }
    run = run_local(tmp_path, "-n", "2", "--", "julia", "-t", "2", "a.jl", settings=settings)
    assert run.code == 0, run
    assert run.log(1) == b"['-t', '2', 'a.jl']\n"
    seen = json.loads((tmp_path / "seen-1.json").read_text())
    first, second, project, package = seen["JULIA_LOAD_PATH"].split(":")
    assert (first, second, project) == ("@", "/mine", str(tmp_path))
    assert (Path(package) / "src" / "PyReactant.jl").is_file()
    assert 'name = "PyReactant"' in (Path(package) / "Project.toml").read_text()
    assert seen["JULIA_PYTHONCALL_EXE"] == sys.executable
    assert seen["JULIA_CONDAPKG_BACKEND"] == "Null"


def test_a_process_that_ends_before_initialize_is_named(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, jax\nif os.environ['PYREACTANT_PROCESS_INDEX'] == '0':\n"
        "    jax.distributed.initialize()\n"
    )
    run = run_local(tmp_path, "-n", "2", "--", "script.py", timeout=240)
    assert run.code == 1, run
    assert "process 1 on" in run.report["summary"]
    assert "before initialize, while process 0 on" in run.report["summary"]


def wrapped(monkeypatch: pytest.MonkeyPatch, **settings: str) -> Any:
    """jax._src.distributed with a stand-in for initialize that returns its arguments."""
    for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_INDEX"):
        monkeypatch.setenv(f"PYREACTANT_{name}", settings[name])
    monkeypatch.setenv("PYREACTANT_STALL_TIMEOUT", "300")

    def initialize(
        coordinator_address: str | None = None,
        num_processes: int | None = None,
        process_id: int | None = None,
        cluster_detection_method: str | None = None,
        heartbeat_timeout_seconds: int = 100,
        coordinator_bind_address: str | None = None,
    ) -> dict[str, Any]:
        return dict(locals())

    module = SimpleNamespace(initialize=initialize)
    plain_jax._wrap_initialize(module)
    return module.initialize


RUN_OF_TWO = {"COORDINATOR_ADDRESS": "127.0.0.1:99", "NUM_PROCESSES": "2", "PROCESS_INDEX": "1"}


def test_initialize_gets_a_heartbeat_and_listens_on_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = wrapped(monkeypatch, **RUN_OF_TWO)()
    assert given["heartbeat_timeout_seconds"] == 360
    assert given["coordinator_bind_address"] == "127.0.0.1:99"
    assert given["coordinator_address"] is None


def test_explicit_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    initialize = wrapped(monkeypatch, **RUN_OF_TWO)
    mine = initialize("10.0.0.1:5", 3, heartbeat_timeout_seconds=7)
    assert mine["heartbeat_timeout_seconds"] == 7
    assert mine["coordinator_bind_address"] is None
    assert (mine["coordinator_address"], mine["num_processes"]) == ("10.0.0.1:5", 3)
    monkeypatch.setenv("PYREACTANT_STALL_TIMEOUT", "1e+06")
    assert initialize()["heartbeat_timeout_seconds"] == 1_000_060
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "[::]:99")
    assert initialize()["coordinator_bind_address"] is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such'"):
        initialize(no_such=1)


def test_the_cluster_that_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Any] = []

    class ClusterEnv:
        def __init_subclass__(cls) -> None:
            added.append(cls)

    plain_jax._add_cluster(SimpleNamespace(ClusterEnv=ClusterEnv))
    (cluster,) = added
    monkeypatch.delenv("PYREACTANT_NUM_PROCESSES", raising=False)
    assert not cluster.is_env_present()
    wrapped(monkeypatch, **RUN_OF_TWO)
    assert cluster.is_env_present()
    assert cluster.get_coordinator_address(300) == "127.0.0.1:99"
    changed = cluster.get_coordinator_address(timeout_secs=3, override_coordinator_port="5")
    assert changed == "127.0.0.1:5"
    assert (cluster.get_process_count(), cluster.get_process_id()) == (2, 1)
    assert cluster.get_local_process_id() is None
    monkeypatch.delenv("PYREACTANT_COORDINATOR_ADDRESS")
    assert cluster.get_coordinator_address().startswith("127.0.0.1:")


ASKS_FIRST = """
import os, sys
import jax
if int(os.environ["JAX_NUM_PROCESSES"]) > 1:
    jax.distributed.initialize(
        os.environ["JAX_COORDINATOR_ADDRESS"],
        int(os.environ["JAX_NUM_PROCESSES"]),
        int(os.environ["JAX_PROCESS_ID"]),
    )
print(jax.process_index(), "of", jax.process_count())
"""
ALONE = "no process joined the others: none called initialize"


def test_a_program_that_initializes_only_if_jax_s_variables_say_so(tmp_path: Path) -> None:
    program = script(tmp_path, ASKS_FIRST)
    one = {
        "JAX_COORDINATOR_ADDRESS": "h",
        "JAX_COORDINATOR_PORT": "5",
        "PYREACTANT_NUM_PROCESSES": "1",
    }
    for count, settings in ((1, {}), (1, one), (2, {}), (2, one)):
        folder = tmp_path / f"{count}-{len(settings)}"
        folder.mkdir()
        options = ("-n", str(count), "--all-output", "--platform", "cpu")
        run = run_local(folder, *options, "--", program, settings=settings)
        assert run.code == 0, run
        for index in range(count):
            assert f"{index} of {count}\n" in run.log(index).decode()
        assert ALONE not in str(run)
        assert run.report["notes"] == []


ALONE_ON_PURPOSE = """
import socket, jax
with socket.socket() as probe:  # each at a port of its own, or one would meet the other
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
jax.distributed.initialize(f"127.0.0.1:{port}", 1, 0)
"""


WITHOUT_VARIABLES = """
import os
for name in [*os.environ]:
    if name.startswith(("PYREACTANT_", "JAX_")):
        del os.environ[name]
import pyreactant as pr
pr.initialize(platform="cpu")
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WITHOUT_VARIABLES, True),
        ("import jax; print(jax.process_count())", True),
        ("import jax, os; os.environ.pop('JAX_NUM_PROCESSES')", True),
        ("import pyreactant as pr, jax; print(pr.Mesh)", True),
        ("import os; print(os.environ['PYREACTANT_PROCESS_INDEX'])", False),  # needs no runtime
        ("import jax; jax.distributed.initialize()", False),
        (ALONE_ON_PURPOSE, False),
    ],
)
def test_copies_that_do_not_join_are_named_at_the_end(
    text: str, told: bool, tmp_path: Path
) -> None:
    run = run_local(tmp_path, "-n", "2", "--platform", "cpu", "--", script(tmp_path, text))
    assert run.code == 0, run
    (note,) = run.report["notes"] or [""]
    assert note.startswith(ALONE) == told
    assert ("with the variables of this run (PYREACTANT_*)" in note) == told
    assert (
        " each of the 2 ran as process 0 of 1" in run.finished[0].log.replace("\n", " ")
    ) == told


EARLY = """
import sys, jax
jax.distributed.initialize()
if jax.process_index() == EARLY:
    sys.exit(0)
import jax.numpy as jnp
from jax.experimental import multihost_utils
print(multihost_utils.process_allgather(jnp.ones(2)))
"""


@pytest.mark.slow  # JAX waits for 30 s
@pytest.mark.parametrize("early", [0, 1])
def test_a_plain_program_that_ends_before_the_others(early: int, tmp_path: Path) -> None:
    program = script(tmp_path, EARLY.replace("EARLY", str(early)))
    run = run_local(tmp_path, "-n", "3", "--platform", "cpu", "--", program, timeout=240)
    assert run.code == 1, run
    report = run.report
    assert (report["cause"], report["first_error"]["process"]) == ("user", early)
    assert f"process {early} on " in report["summary"]
    assert " had ended its program while " in report["summary"]
    said = run.finished[0].log.replace("\n", " ")
    assert re.search(rf"process {early} on \S+ ended its program \d\d s ago, and ", said), run


ONE_THREAD = """
import jax, os, pyreactant as pr, threading
pr.initialize()
sharding = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
x = jax.make_array_from_callback((8,), sharding, lambda index: jax.numpy.arange(8.0)[index])
if jax.process_index() == 0:
    thread = threading.Thread(target=lambda: print(jax.jit(lambda x: x.sum())(x)), name="evaluate")
    thread.start()
    thread.join(30)
    os._exit(3)
"""


@pytest.mark.slow  # the processes stand still for 30 s
def test_an_operation_in_a_thread_of_one_process(tmp_path: Path) -> None:
    """The guard compares threads by name; the other process has none, and does no more."""
    program = script(tmp_path, ONE_THREAD)
    run = run_local(tmp_path, "-n", "2", "--platform", "cpu", "--", program, timeout=240)
    assert run.code != 0, run
    said = run.finished[0].log.replace("\n", " ")
    assert re.search(r"process 1 on \S+ ended its program \d\d s ago, and process 0", said), run


NEVER_COMES = """
import os
BEGIN
if os.environ["PYREACTANT_PROCESS_INDEX"] == "2":
    while True: pass
WAIT
"""
COUNTED = (
    """
import numpy as np
import pyreactant as pr
mesh = pr.Mesh((len(pr.devices()),), ("i",))
x = pr.device_put(np.ones((6, 6), np.float32), pr.NamedSharding(mesh, ("i",)))
x.gather()
""",
    "x.gather()",
    "process 2 on {host} did not begin operation ",
)
UNCOUNTED = (
    """
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
""",
    "multihost_utils.process_allgather(jnp.ones(2))",
    "process 2 on {host} did make progress, and they may wait for it",
)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(COUNTED, id="counted"),
        pytest.param(UNCOUNTED, id="plain", marks=pytest.mark.slow),
    ],
)
def test_the_process_that_never_comes_to_an_operation(
    kind: tuple[str, str, str], tmp_path: Path
) -> None:
    begin, wait, words = kind
    text = NEVER_COMES.replace("BEGIN", begin).replace("WAIT", wait)
    options = ("-n", "3", "--platform", "cpu", "--stall-timeout", "10", "--end-stalled")
    run = run_local(tmp_path, *options, "--", script(tmp_path, text), timeout=240)
    assert run.code == 7, run
    assert run.report["first_error"]["process"] == 2
    assert words.format(host=socket.gethostname()) in run.report["summary"]


STALL = ("--stall-timeout", "10")
"""A busy machine may not run a pulse thread for seconds."""

STUCK = """
import os, pathlib, socket, threading, time
def stuck():
    threading.Event().wait()
def waits():
    mine, theirs = socket.socketpair()
    mine.recv(1)
def deep(calls):
    deep(calls - 1) if calls else stuck()
if os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    for _ in range(60):
        threading.Thread(target=deep, args=(60,), daemon=True).start()
    stuck()
waits()
"""
"""Process 1 has more stacks than a pipe holds; those of the main thread come last."""


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("stuck")
    options = ("-n", "2", *STALL, "--end-stalled")
    return run_local(folder, *options, "--", script(folder, STUCK), timeout=240)


def test_processes_without_progress_are_reported_with_the_stacks_of_all(stuck: Run) -> None:
    text = (stuck.folder / "stalled-1.txt").read_text()
    for index, function in ((0, "waits"), (1, "stuck")):
        assert f"process {index} on " in text
        assert f" in {function}\n" in text
    assert text.endswith(" in _run_module_as_main\n"), "the last part of the stacks is lost"
    assert ":\n...\n  File " in text, "there were too many stacks for a report"
    assert text.count("no progress for") >= 2
    (report,) = stuck.report["stalls"]
    assert report["file"] == "stalled-1.txt"
    assert report["summary"] in stuck.finished[0].log.replace("\n", " ")
    assert "the main thread's stack stays the same, and no CPU is used" in report["summary"]
    for index in (0, 1):
        assert re.search(rf"process {index} at \S*, line \d+", report["summary"])


def test_such_a_run_is_ended_if_the_user_wants_it(stuck: Run) -> None:
    assert stuck.code == 7, stuck
    assert stuck.report["cause"] == "timeout"
    assert "made no progress for" in stuck.report["summary"]


ENDS_WHEN_ASKED = """
import os, pathlib, signal, sys, time
from pyreactant.process.supervised.main import STACKS_SIGNAL
ready = pathlib.Path("ready")
def write(*_):
    os.write(pipe, b"a part of the stacks")
    os._exit(3)
if os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    names = {int(name): f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}
    links = {n: os.readlink(name) for n, name in names.items() if n > 2 and os.path.exists(name)}
    (pipe,) = (n for n, link in links.items() if link.startswith("pipe:"))
    signal.signal(STACKS_SIGNAL, write)
    ready.touch()
    time.sleep(300)
while not ready.exists():
    time.sleep(0.1)
sys.exit(1)
"""
"""Process 1 ends while the supervisor still waits for the rest of its stacks."""


def test_a_process_that_ends_while_its_stacks_are_read_has_none(tmp_path: Path) -> None:
    run = run_local(tmp_path, "-n", "2", "--", script(tmp_path, ENDS_WHEN_ASKED), timeout=240)
    assert run.code == 1, run
    assert run.report["processes"][1]["exit_code"] == 3
    assert run.report["processes"][1]["stacks"] is None


SLOW = """
import time, pathlib
print("a line in", end="", flush=True)
deadline = time.monotonic() + 150
def sleeps():
    while not pathlib.Path("run/stalled-1.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
sleeps()
end = time.process_time() + 0.3
while time.process_time() < end: pass
print(" pieces", flush=True)
time.sleep(3)
"""


@pytest.mark.slow
def test_a_run_that_is_only_slow_goes_on(tmp_path: Path) -> None:
    run = run_local(tmp_path, *STALL, "--", script(tmp_path, SLOW), timeout=240)
    assert run.code == 0, run
    assert "the run goes on, --end-stalled would end it" in run.finished[0].log
    assert "pyreactant:   |   File " in run.finished[0].log
    assert "[0] a line in\npyreactant: process 0 on " in run.finished[0].log
    assert "\n[0]  pieces\n" in run.finished[0].log
    assert "process 0 makes progress again" in run.finished[0].log
    assert run.report["cause"] == "done"
    assert run.report["processes"][0]["stacks"] is None


LATE = """
import os, time
deadline = time.monotonic() + 60
if "PYREACTANT_SUPERVISOR_FDS" in os.environ and os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    while not os.path.exists(os.environ["AWAITED"]) and time.monotonic() < deadline:
        time.sleep(0.1)
"""
"""What Python runs before anything of pyreactant; process 1 begins late."""

WAITS = """
import os, time
while os.environ["PYREACTANT_PROCESS_INDEX"] == "0" and not os.path.exists("run/stalled-1.txt"):
    time.sleep(0.1)
print("here")
"""


def test_a_process_that_begins_late_or_never(tmp_path: Path) -> None:
    """A late one is not stalled, and asking the others for their stacks does not end it."""
    (tmp_path / "sitecustomize.py").write_text(LATE)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    waits = script(tmp_path, WAITS)
    settings = {"PYTHONPATH": path, "AWAITED": "run/stalled-1.txt"}
    run = run_local(tmp_path, "-n", "2", "--stall-timeout", "2", "--", waits, settings=settings)
    assert run.code == 0, run
    assert run.log(1) == b"here\n"
    again = tmp_path / "again"
    again.mkdir()
    limits = ("--stall-timeout", "1", "--start-timeout", "3")
    settings["AWAITED"] = "never"
    run = run_local(again, "-n", "2", *limits, "--", waits, settings=settings)
    assert run.code == 7, run
    assert run.report["first_error"]["process"] == 1
    # The kernel's state at one moment, in which the process may be looking for the file.
    told = r"did not begin within 3 s: Python is (waiting|running); see "
    assert re.search(told, run.report["summary"]), run


def test_progress_is_another_stack_or_cpu_time() -> None:
    progress = link.Progress(1.0)
    assert progress.look(0.0) is None
    assert progress.look(0.05) is None  # looks only now and then
    numbers = iter([1, 1, 1, 1, 2, 2])
    progress = link.Progress(1.0)
    progress._stack_now = lambda: next(numbers)  # type: ignore[method-assign]
    assert [progress.look(float(now)) for now in (10, 11, 12)] == [None, 1.0, None]
    assert [progress.look(float(now)) for now in (13, 14, 15)] == [None, 0.0, 1.0]


def test_a_block_of_a_checkpoint_is_progress() -> None:
    watched = link.Progress(1.0)
    watched._stack_now = lambda: 1  # type: ignore[method-assign]
    for now in (10.0, 12.0, 14.0):
        counted.store_block()
        assert watched.look(now) is None
    assert watched.look(16.0) == 2.0
