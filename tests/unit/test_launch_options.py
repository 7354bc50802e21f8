"""Options of a run: a message for every bad value; the run's folder; its devices."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyreactant import FileError, InvalidArgumentError
from pyreactant.process.group import ProcessGroup
from pyreactant.runs.supervisor import RunOptions
from pyreactant.runs.supervisor import options as _options
from pyreactant.runs.supervisor.options import (
    device_settings,
    fresh_folder,
    platform_note,
    release,
)
from pyreactant.runs.supervisor.supervisor import supervise


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"processes": 0}, "processes must be 1 to 4096, got 0"),
        ({"devices_per_process": 0}, "devices_per_process must be 1 to 4096, got 0"),
        ({"max_restarts": -1}, "max_restarts must be 0 to 4096, got -1"),
        ({"start_timeout": 0}, "start_timeout must be positive seconds, got 0"),
        ({"stall_timeout": -1}, "stall_timeout must be positive seconds, got -1"),
        ({"heartbeat_timeout": math.nan}, "heartbeat_timeout must be positive seconds, got nan"),
        ({"grace": 0}, "grace must be positive seconds, got 0"),
        ({"timeout": 0.0}, "timeout must be positive seconds, got 0.0"),
        (
            {"program": []},
            "name a program: pyreactant run -- SCRIPT .*, or -- COMMAND",
        ),
        ({"program": ["-m"]}, "name a program"),
        ({"program": [""]}, "name a program"),
        ({"program": ("-m",)}, "name a program"),
    ],
)
def test_bad_values(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        RunOptions(**{"program": ["-m", "this"], **values})


@pytest.mark.parametrize("value", ["0", "-2", "4097"])
def test_a_number_of_devices_that_jax_would_not_survive(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", value)
    with pytest.raises(InvalidArgumentError, match=f"JAX_NUM_CPU_DEVICES must .* got {value};"):
        RunOptions(["-m", "this"])
    RunOptions(["-m", "this"], devices_per_process=1)  # wins
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "-1")  # JAX's default
    RunOptions(["-m", "this"])


def test_an_option_that_wins_over_the_platforms_of_jax() -> None:
    cpu, gpu = (RunOptions(["-m", "this"], platform=name) for name in ("cpu", "gpu"))
    said = "JAX_PLATFORMS=quantum does not count beside platform='cpu'"
    assert platform_note(cpu, {"JAX_PLATFORMS": "quantum"}) == said
    assert platform_note(gpu, {"JAX_PLATFORMS": "cpu"})
    assert not platform_note(gpu, {"JAX_PLATFORMS": "cuda,cpu"})
    assert not platform_note(cpu, {"JAX_PLATFORMS": "cpu"})
    assert not platform_note(cpu, {})
    assert not platform_note(RunOptions(["-m", "this"]), {"JAX_PLATFORMS": "quantum"})


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("no.py", "the script 'no.py' does not exist in /"),
        ("folder", "'folder' is a folder without __main__.py, not a script"),
        (
            "x" * 300 + ".py",
            r"the script 'x+.py' (does not exist in /|cannot be read \(File name too long\))",
        ),
    ],
)
def test_bad_scripts(
    program: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(FileError, match=words):
        RunOptions([program])
    Path("folder/__main__.py").touch()
    RunOptions(["folder"])


def test_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fresh_folder(None, "a-run", 0) == tmp_path / "pyreactant-runs" / "a-run"
    assert fresh_folder(None, "b-run", 2) == tmp_path / "pyreactant-runs" / "b-run" / "restart-2"
    assert Path("pyreactant-runs/.gitignore").read_text() == "*\n"
    assert not list(Path("pyreactant-runs").glob("*-run/.gitignore"))
    chosen = fresh_folder(Path("here/below"), "a-run", 0)
    assert chosen == tmp_path / "here/below"
    taken = r"'here/below' exists and is not empty; name another with"
    with pytest.raises(FileError, match=taken):  # two runs at the same time
        fresh_folder(Path("here/below"), "a-run", 0)
    release(chosen)
    assert fresh_folder(Path("here/below"), "a-run", 0) == chosen
    (chosen / "report.json").touch()
    release(chosen)
    with pytest.raises(FileError, match=taken):
        fresh_folder(Path("here/below"), "a-run", 0)
    # A requeued job has the same options and finds the folder of its first run.
    assert fresh_folder(Path("here/below"), "a-run", 2) == chosen / "restart-2"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("file", "'file' is not a folder; name another with folder"),
        ("file/below", r"cannot be made \(Not a directory\); name another with folder"),
        ("/proc/run", r"cannot be made \(No such file or directory\); name another"),
        ("x" * 300, r"cannot be made \(File name too long\)"),
    ],
)
def test_folders_that_cannot_be_made(
    folder: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(FileError, match=words):
        fresh_folder(Path(folder), "a-run", 0)


ALONE = ProcessGroup()
NONE_HIDDEN: Mapping[str, str] = {}


def devices(
    gpus: int,
    processes: int,
    monkeypatch: pytest.MonkeyPatch,
    group: ProcessGroup = ALONE,
    visible: Mapping[str, str] = NONE_HIDDEN,
    **options: Any,
) -> list[dict[str, str]]:
    """The settings of each process, without their common prefix."""
    monkeypatch.setattr(_options.facts, "gpus", lambda: gpus)
    for name in set(_options.facts.VISIBLE_GPUS).difference(visible):
        monkeypatch.delenv(name, raising=False)
    for name, value in visible.items():
        monkeypatch.setenv(name, value)
    found = device_settings(RunOptions(["-m", "this"], **options), group, processes)
    assert len(found) == processes
    return [{k.removeprefix("PYREACTANT_"): v for k, v in each.items()} for each in found]


@pytest.mark.parametrize(
    ("gpus", "processes", "options", "expected"),
    [
        (0, 1, {}, {}),
        (0, 2, {}, {"NUM_CPU_DEVICES": "1"}),
        (0, 2, {"devices_per_process": 4}, {"NUM_CPU_DEVICES": "4"}),
        (
            8,
            2,
            {"platform": "cpu", "devices_per_process": 3},
            {"NUM_CPU_DEVICES": "3", "PLATFORM": "cpu"},
        ),
        (0, 1, {"backend": "jax", "platform": "tpu"}, {"BACKEND": "jax", "PLATFORM": "tpu"}),
        (8, 1, {}, {}),
    ],
)
def test_devices_without_a_share(
    gpus: int,
    processes: int,
    options: dict[str, Any],
    expected: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert devices(gpus, processes, monkeypatch, **options) == [expected] * processes


@pytest.mark.parametrize(
    ("gpus", "processes", "each", "expected"),
    [
        (8, 2, None, ["0,1,2,3", "4,5,6,7"]),
        (8, 3, None, ["0,1", "2,3", "4,5"]),
        (8, 2, 1, ["0", "1"]),
        (8, 1, 2, ["0,1"]),
        (4, 4, 1, ["0", "1", "2", "3"]),
    ],
)
def test_each_process_gets_its_own_gpus(
    gpus: int,
    processes: int,
    each: int | None,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = devices(gpus, processes, monkeypatch, devices_per_process=each)
    assert [f["LOCAL_DEVICE_IDS"] for f in found] == expected


def test_gpus_that_are_named_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --processes too, where the launcher need not be known."""
    monkeypatch.setenv("PYREACTANT_LOCAL_DEVICE_IDS", "0;1")
    with pytest.raises(InvalidArgumentError, match=r"LOCAL_DEVICE_IDS must be whole .* got '0;1'"):
        supervise(RunOptions(["-m", "this"], processes=2))


def test_the_launchers_share_of_gpus_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ProcessGroup(2, 1, "hosta:1", local_device_ids=(2, 3))
    assert devices(8, 1, monkeypatch, group) == [{"LOCAL_DEVICE_IDS": "2,3"}]


@pytest.mark.parametrize(
    ("processes", "each", "expected"),
    [(2, None, ["4,5", "6,7"]), (2, 1, ["4", "5"]), (4, None, ["4", "5", "6", "7"])],
)
def test_named_gpus_are_divided(
    processes: int, each: int | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that both get all of them would be refused by NCCL."""
    group = ProcessGroup(local_device_ids=(4, 5, 6, 7))
    found = devices(8, processes, monkeypatch, group, devices_per_process=each)
    assert [f["LOCAL_DEVICE_IDS"] for f in found] == expected


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_visible_gpus_are_divided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers count from 0, whichever GPUs are visible."""
    found = devices(8, 2, monkeypatch, visible={name: "5,7"})
    assert [f["LOCAL_DEVICE_IDS"] for f in found] == ["0", "1"]
    with pytest.raises(InvalidArgumentError, match="but this process sees 1; use fewer"):
        devices(8, 2, monkeypatch, visible={name: "5,-1,7"})
    assert devices(8, 2, monkeypatch, visible={name: ""}) == [{"NUM_CPU_DEVICES": "1"}] * 2


@pytest.mark.parametrize(
    ("gpus", "processes", "each", "expected"),
    [
        (1, 2, None, [("0", "0.375")] * 2),
        (1, 2, 1, [("0", "0.375")] * 2),
        (2, 3, None, [("0", "0.375"), ("1", "0.375"), ("0", "0.375")]),
    ],
)
def test_processes_share_gpus_if_nccl_lets_them(
    gpus: int,
    processes: int,
    each: int | None,
    expected: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    found = devices(gpus, processes, monkeypatch, devices_per_process=each)
    memory = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_REACTANT_GPU_MEM_FRACTION")
    assert [(f["LOCAL_DEVICE_IDS"], f[memory[0]]) for f in found] == expected
    assert all(f[memory[0]] == f[memory[1]] for f in found)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = devices(gpus, processes, monkeypatch, devices_per_process=each)
    assert not any(name in f for name in memory for f in found)
    # Where there are enough, each still has its own.
    assert devices(3, 3, monkeypatch)[2] == {"LOCAL_DEVICE_IDS": "2"}


@pytest.mark.parametrize(
    ("gpus", "processes", "options", "words"),
    [
        (
            4,
            3,
            {"devices_per_process": 2},
            "3 processes with 2 GPUs each were requested, but this "
            "machine has 4; use fewer, or platform='cpu'",
        ),
        (
            2,
            3,
            {},
            "3 processes with 1 GPU each were requested, but this machine has 2; use fewer, or "
            "platform='cpu'; or let them share a GPU, with NCCL 2.30 or newer and NCCL_MULTI_RANK_",
        ),
        (0, 2, {"platform": "gpu"}, "this machine has 0; use fewer, or platform='cpu'"),
        (0, 2, {"platform": "tpu"}, "one process drives all TPU chips .*; omit processes"),
    ],
)
def test_devices_that_are_not_there(
    gpus: int, processes: int, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        devices(gpus, processes, monkeypatch, **options)
