"""The programs of programs.py on 2 and 4 real processes."""

from pathlib import Path

import pytest

from tests.harness import check_all_passed, logs, run_program

# One run for all of them, because starting the runtimes takes longer than the programs.
PLACED = "permuted_devices+constructors+unequal_copies+not_addressable+uneven"
ON_ALL = f"{PLACED}+matmul_pairs+bodies+freivalds"
ON_TWO = "dtypes+arguments_stay+mismatched+barriers+exchange_and_total+device_ids+lonely_barrier"


@pytest.mark.parametrize(
    ("processes", "devices", "programs"),
    [
        pytest.param(2, 4, ON_ALL, id="2x4", marks=pytest.mark.slow),
        pytest.param(4, 1, f"{PLACED}+matmul_specs", id="4x1"),
    ],
)
def test_programs(processes: int, devices: int, programs: str, tmp_path: Path) -> None:
    check_all_passed(run_program(programs, tmp_path, processes=processes, devices=devices))


def test_programs_on_two(tmp_path: Path) -> None:
    check_all_passed(run_program(ON_TWO, tmp_path, processes=2, devices=2))


def test_processes_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    path = str(out / "c.npy")
    check_all_passed(run_program("write_result", tmp_path, processes=2, devices=2, path=path))
    assert sorted(p.name for p in out.iterdir()) == [f"{i}.npy" for i in range(6)]


def test_failure_on_one_is_raised_on_all(tmp_path: Path) -> None:
    finished = run_program("fails_on_one", tmp_path, processes=4, devices=2, path="c.npy")
    check_all_passed(finished)


def test_raising_process_ends_at_once(tmp_path: Path) -> None:
    """With JAX's defaults all processes would wait 300 s at the exit barrier."""
    finished = run_program("raises_on_one", tmp_path, processes=2, devices=2, timeout=90)
    assert finished[1].code == 1, logs(finished)
    assert "the user's own mistake" in finished[1].log, logs(finished)
    assert finished[0].code is not None, logs(finished)
    assert finished[0].code != 0, logs(finished)
