"""A user's mistake is one line that says what to do, never an internal error."""

import subprocess
import sys

import pytest

from tests.harness import environment
from tests.harness import pyreactant as run

CREATE = "tpu create --dry-run --name a --project my-project --zone europe-west4-a --topology v6e-1"
SLICE = "run --on tpu --topology v6e-1 --project my-project --zone a-b1-c --dry-run"
# Arguments, exit code, words of the message.
MISTAKES = {
    "nodes": ("crosscheck --on slurm --nodes -1 --dry-run", 2, "--nodes must be 1 or more, got -1"),
    "size": ("crosscheck --on slurm --size 0 --dry-run", 2, "--size must be 1 or more, got 0"),
    "mesh": ("crosscheck --on slurm --mesh 2x5x --dry-run", 2, "cannot read mesh '2x5x'"),
    "spec": ("crosscheck --on slurm --spec x- --dry-run", 2, "'x-'"),
    "dtype": ("crosscheck --on slurm --dtype quantum --dry-run", 2, "unknown dtype 'quantum'"),
    "platform": (
        "crosscheck --on slurm --platform quantum --dry-run",
        2,
        "unknown platform 'quantum'",
    ),
    "script": ("run --on slurm --dry-run -- missing.py", 2, "there is no program 'missing.py'"),
    "devices": (
        "matmul --devices-per-process 100000",
        2,
        "--devices-per-process must be 1 to 4096",
    ),
    "memory": (
        "plan --size 1000000 --topology v6e-1",
        5,
        "the only layout of",
    ),
    "preflight": ("preflight --topology v6e-4 --html /none/a.html", 2, "folder does not exist"),
    "plan": ("plan --topology v6e-4 --html /none/a.html", 2, "--html /none/a.html: its folder"),
    "processes": ("run -n 1000 --platform quantum -- ls", 2, "unknown platform 'quantum'"),
    "chips": ("run --platform tpu --devices-per-process 4 -- ls", 2, "has all devices of its"),
    "infinite": ("run --grace inf -- ls", 2, "it must be a duration, such as 90s, got 'inf'"),
    "module": ("preflight --topology v6e-1 --stablehlo x --size 8", 2, "has its own shapes"),
    "type": (
        "preflight --topology v6e-1 --stablehlo x --dtype float16",
        2,
        "its own shapes, types",
    ),
    "seed": ("matmul --seed 1", 2, "the reference case has none; give --size"),
    "gpus": ("matmul --platform gpu --devices-per-process 2", 2, "is for the devices of a CPU"),
    "zone": ("tpu gc --project my-project", 2, "give --zone, or set ZONE"),
    "needed": ("crosscheck matmul --modules .", 2, "--modules needs --gradients; give both"),
    "together": ("topology --all --slices 2", 2, "give --all or --slices, not both"),
    "job": (
        "run --detach --dry-run --platform quantum -- -m this",
        2,
        "error: --platform must be one of",
    ),
    "jobs": ("run --detach --dry-run -n 0 -- -m this", 2, "error: --processes must be 1 to 4096"),
    "node": (
        "run --on slurm --nodes 0 --dry-run -- -m this",
        2,
        "error: --nodes must be 1 or more",
    ),
    "reach": (f"{SLICE} --reach quantum -- -m this", 2, "--reach must be gcloud or ssh, got"),
    "user": (f"{SLICE} --user x=y -- -m this", 2, "--user must be a login name, got 'x=y'"),
    "flag": (f"{SLICE} --ssh-flag x -- -m this", 2, "--ssh-flag must begin with -, got 'x'"),
    "create": ("tpu create --dry-run --json", 2, "give --dry-run or --json, not both"),
    "reached": (f"{CREATE} --ray --reach quantum", 2, "--reach must be gcloud or ssh"),
    "transport": (f"{CREATE} --transport quantum", 2, "--transport must be one of rest, grpc"),
    "port": ("run --on ray --address h:99999 --dry-run -- -m this", 2, "got port 99999 in 'h:9"),
    "check": ("crosscheck --on slurm --dry-run --json", 2, "give --dry-run or --json, not both"),
    "softmax": ("preflight softmax --topology v6e-1", 2, "a built-in program, --size is enough"),
    "hours": (
        "run --on tpu --topology v6e-1 --lifetime 6 --dry-run -- -m this",
        2,
        "--lifetime: it needs a unit; write 6h for 6 hours",
    ),
    "days": ("jobs clean --older-than 30", 2, "it needs a unit; write 30d for 30 days"),
    "limit": ("plan --topology v6e-1 --size 64 --timeout 0", 2, "--timeout must be positive"),
    "pool": ("plan --topology v6e-1 --size 64 --workers 0", 2, "--workers must be 1 or more"),
    "place": (
        "run --on slurm --processes 2 --dry-run -- -m this",
        2,
        "--processes is an option of a run in the foreground on this machine or --detach on this",
    ),
    "checked": ("crosscheck --dry-run", 2, "--dry-run needs --on; give both"),
    "sbatch": (
        "crosscheck --on slurm --nodes 2 --sbatch=-N3 --dry-run",
        2,
        "give --nodes or --sbatch=-N3",
    ),
    "dry": ("run --detach --dry-run --env LAW_NOPE -- -m this", 2, "--env names LAW_NOPE, which"),
    "off": ("crosscheck --no-gradients --modules .", 2, "--modules needs --gradients"),
    "empty": ("matmul --dtype=", 2, "error: --dtype: it is empty; give a value"),
    "path": ("run --out= -- ls", 2, "error: --out: it is empty; give a value"),
    "help": ("run --nonsense", 2, "error: no such option: --nonsense (see "),
    "number": (
        "matmul --size 1e3",
        2,
        "error: --size: it must be a whole number, got '1e3' (see ",
    ),
    "cpus": ("run --on ray --num-cpus x -- ls", 2, "--num-cpus: it must be a number, got 'x'"),
    "near": ("matmul --sise 3", 2, "no such option: --sise; did you mean --size? (see "),
    "begun": ("matmul --devices 4", 2, "--devices; did you mean --devices-per-process? (see "),
    "of here": ("run --nod 3 -- ls", 2, "no such option: --nod (see "),
    "of slurm": ("run --on slurm --nod 3 -- ls", 2, "no such option: --nod; did you mean --nodes?"),
    "of tpu": ("run --on=tpu --lifetim 3h -- ls", 2, "did you mean --lifetime? (see "),
    "command": ("jobs cleann", 2, "error: no such command 'cleann'; did you mean 'clean'? (see "),
    "missing": (
        "preflight",
        2,
        "error: --topology is missing; give this option, such as v6e-16 (`pyreactant topology "
        "--all` lists them) (see ",
    ),
    "no slice": ("run --on tpu -- x.py", 2, "needs --topology, a slice such as v6e-16 (`pyreac"),
    "no slice, either": (
        "crosscheck --on tpu",
        2,
        "; --topology takes a slice, such as v6e-16 (`pyreac",
    ),
    "nor here": ("plan", 2, "to plan for a TPU slice, such as v6e-16 (`pyreactant topology --all`"),
    "argument": ("jobs status", 2, "error: ID is missing; give it (see "),
    "no value": ("matmul --size", 2, "error: --size needs a value (see "),
    "a value": ("matmul --json=1", 2, "error: --json takes no value; leave it out (see "),
    "no flag": ("crosscheck --no-gradients=1", 2, "error: --no-gradients takes no value; leave"),
    "auto": (
        "crosscheck --backends auto,jax",
        2,
        "auto stands for all available runtimes, and cannot be among others, got auto,jax; write ",
    ),
    "sizes of what cannot be imported": (
        "preflight no_such_module:f --topology v6e-1 --size 8",
        2,
        "error: cannot import program 'no_such_module:f': No module named 'no_such_module'",
    ),
    "sizes": (
        "preflight jax.nn:softmax --topology v6e-1 --size 8",
        2,
        "error: --size is for programs whose shapes are known, and 'jax.nn:softmax' must be",
    ),
    "sizes of a plan": (
        "plan jax.nn:softmax --topology v6e-1 --size 8",
        2,
        "error: --size is for programs whose shapes are known, and 'jax.nn:softmax' must be",
    ),
    "sizes and shapes of a plan": (
        "plan softmax --topology v6e-1 --size 8 --shape 8x8",
        2,
        "error: give --shape for each argument, or --size for all, not both",
    ),
    **{
        option: (
            f"run --on tpu --topology v6e-1 --project p-12345 --zone a-b1-c {option}={value} -- ls",
            2,
            f"error: {option} must be",
        )
        for option, value in {
            "--user": ";x",
            "--reach": "telnet",
            "--ssh-flag": "host",
            "--network": ";",
            "--subnetwork": ";",
        }.items()
    },
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake(name: str) -> None:
    words, code, message = MISTAKES[name]
    done = run(*words.split())
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert "internal error" not in done.stderr


def test_a_time_limit_of_slurm_with_a_unit() -> None:
    """As of every other duration; a number alone stays minutes."""
    line = ["run", "--on", "slurm", "--dry-run", "--time"]
    for given, wanted in {"90m": "01:30:00", "1d2h": "26:00:00", "7": "7", "2-1": "2-1"}.items():
        done = run(*line, given, "--", "ls")
        assert done.returncode == 0, done.stderr
        assert f"--time={wanted} " in done.stdout


def test_an_ascii_locale() -> None:
    done = run("topology", "--all", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "v6e-16" in done.stdout


@pytest.mark.parametrize("command", ["--help", "topology --all"])
def test_a_full_disk(command: str) -> None:
    argv = [sys.executable, "-m", "pyreactant", *command.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert done.returncode == 2
    assert "the output cannot be written (No space left on device)" in done.stderr
