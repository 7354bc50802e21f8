"""`pyreactant explain`: what decides and why, as text and JSON; it shows no secret."""

import json
import subprocess
import sys
from functools import partial

import pytest

from tests.harness import environment, pyreactant
from tests.unit.test_process_group_slurm import step

explain = partial(pyreactant, "explain")


def test_one_process() -> None:
    ran = explain()
    assert ran.returncode == 0, ran.stderr
    assert "> one process         no launcher started several processes" in ran.stdout
    assert "  Slurm               not in a Slurm job: SLURM_JOB_ID is not set" in ran.stdout
    assert "process 0 of 1, decided by one process" in ran.stdout
    assert "local devices  all visible" in ran.stdout


def test_a_task() -> None:
    ran = explain(**step([2, 2])[1], CUDA_VISIBLE_DEVICES="0,1")
    assert ran.returncode == 0, ran.stderr
    assert "> Slurm               task 1 of a step" in ran.stdout
    assert "    SLURM_STEP_NODELIST=n0,n1" in ran.stdout
    assert "process 1 of 4, decided by Slurm" in ran.stdout
    assert "  hosts          n0, n0, n1, n1" in ran.stdout
    assert "  run            slurm 123.4 restart 0" in ran.stdout
    assert "  local devices  1\n" in ran.stdout
    assert "note: 2 tasks on this node see the same 2 GPUs; this one takes 1 of" in ran.stdout


def test_json() -> None:
    ran = explain("--json", **step([1, 1])[1])
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["decided"] == "Slurm"
    assert report["group"]["hosts"] == ["n0", "n1"]
    assert report["group"]["coordinator_address"].startswith("n0:6")
    assert report["error"] is None
    names = [resolver["name"] for resolver in report["resolvers"]]
    assert names == [
        "arguments",
        "environment",
        "Pathways",
        "JobSet",
        "Slurm",
        "Open MPI",
        "PMIx",
        "Cloud TPU on GKE",
        "Cloud TPU metadata",
        "other launchers",
        "one process",
    ]
    assert [r["name"] for r in report["resolvers"] if r["decides"]] == ["Slurm"]
    assert [r["name"] for r in report["resolvers"] if r["applies"]] == ["Slurm"]
    assert report["resolvers"][-1]["reason"] == "not asked: Slurm decides"
    assert report["resolvers"][names.index("Slurm")]["saw"]["SLURM_PROCID"] == "1"


OURS = {
    "PYREACTANT_NUM_PROCESSES": "2",
    "PYREACTANT_PROCESS_INDEX": "1",
    "PYREACTANT_COORDINATOR_ADDRESS": "h:1",
}
JAXS = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "JAX_COORDINATOR_ADDRESS": "h:1"}
ONE_HOST = {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a"}


@pytest.mark.parametrize(
    ("environ", "decider"),
    [
        (OURS, "environment"),
        (OURS | JAXS, "environment"),
        (JAXS, "other launchers"),
        (ONE_HOST | {"PYREACTANT_COORDINATOR_ADDRESS": "h:1"}, "Cloud TPU on GKE"),
    ],
)
def test_no_row_is_untrue(environ: dict[str, str], decider: str) -> None:
    """One process is what is left if nothing above decides: it has no error of its own then."""
    ran = explain("--json", **environ)
    assert ran.returncode == 0, ran.stderr
    last = json.loads(ran.stdout)["resolvers"][-1]
    assert (last["name"], last["error"], last["applies"]) == ("one process", None, False)
    assert last["reason"] == f"not asked: {decider} decides"


SHELL = {"SLURM_JOB_ID": "9", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "4"}
LINE = "srun --kill-on-bad-exit=1 ..."


def test_a_launch_that_cannot_work() -> None:
    ran = explain(**SHELL)
    assert ran.returncode == 2
    assert "> Slurm               the launch cannot work" in ran.stdout
    assert "Slurm decides, and the launch cannot work" in ran.stdout
    assert ran.stderr.startswith("error: this is a shell of Slurm job 9")
    assert ran.stderr.endswith(f"{LINE}\n")
    ran = explain("--json", **SHELL)
    assert ran.returncode == 2
    report = json.loads(ran.stdout)
    assert (report["decided"], report["group"], report["line"]) == (None, None, LINE)
    assert report["error"].endswith(LINE)


def test_a_trap_that_comes_too_late_is_shown() -> None:
    ran = explain(**SHELL, PYREACTANT_NUM_PROCESSES="1")
    assert ran.returncode == 0, ran.stderr
    assert "    would be an error: this is a shell of Slurm job 9" in ran.stdout
    assert LINE in ran.stdout
    assert "process 0 of 1, decided by environment" in ran.stdout


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_no_secret_is_shown(arguments: list[str]) -> None:
    ran = explain(
        *arguments,
        PYREACTANT_SECRET="hush",
        PYREACTANT_SECRET_FILE="/hush",
        http_proxy="http://me:hush@proxy:1",
        HTTPS_PROXY="http://me:hush@proxy:1",
    )
    assert ran.returncode == 0, ran.stderr
    assert "hush" not in ran.stdout + ran.stderr
    assert "connects to the coordinator without the proxy of http_proxy, HTTPS_PROXY" in ran.stdout


def test_control_characters_are_shown() -> None:
    """A variable's value neither colours the terminal nor forges a row."""
    ran = explain(TPU_WORKER_HOSTNAMES="a\x1b[31m\n> Slurm  task 0,b", TPU_WORKER_ID="0")
    assert ran.returncode == 2
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "TPU_WORKER_HOSTNAMES=a\\x1b[31m\\n> Slurm" in ran.stdout


def test_it_starts_nothing_heavy() -> None:
    code = (
        "import sys; from pyreactant.process.group import resolve; resolve(environ={});"
        "print(*{'jax', 'subprocess', 'urllib.request', 'http.client'} & set(sys.modules))"
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYREACTANT_BACKEND", "quantum"),
        ("PYREACTANT_PLATFORM", "quantum"),
        ("PYREACTANT_NUM_CPU_DEVICES", "0"),
        ("PYREACTANT_NUM_CPU_DEVICES", "many"),
        ("PYREACTANT_GUARD", "maybe"),
    ],
)
def test_a_setting_that_no_program_takes(name: str, value: str) -> None:
    """The program that is started in its place fails, so this does not succeed."""
    ran = explain("--json", **{name: value})
    assert ran.returncode == 2, ran.stdout
    assert ran.stderr.startswith("error: ")
    assert name in ran.stderr
    assert ran.stdout == ""
