"""The report: JSON for programs and text for people; each file is complete or absent."""

import itertools
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant.process.events import Exited, Raised
from pyreactant.process.group import coordinator
from pyreactant.runs.supervisor import RunReport
from pyreactant.runs.supervisor.cause import find_failure
from pyreactant.runs.supervisor.mtls import off_note
from pyreactant.runs.supervisor.output import Own, close_terminals, own_lines
from pyreactant.runs.supervisor.report import first_error, process_row
from pyreactant.runs.supervisor.state import ProcessState, utc


def broken(count: int = 3, culprit: int = 1, host: str = "hosta") -> RunReport:
    """A run in which one process raises, and the supervisor ends the others."""
    states = [ProcessState(i, host, log=f"/logs/process-{i}.log") for i in range(count)]
    for state in states:
        state.enter("initialized", 1.0)
        if state.index == culprit:
            text = "Traceback:\n  here\nValueError: broken\n"
            state.apply(Raised("ValueError", "broken", text), 5.0)
        ended = state.index != culprit
        state.apply(Exited(-15 if ended else 1, "printed\n", by_supervisor=ended), 6.0)
    failure = find_failure(states, 7.0)
    assert failure is not None
    return RunReport(
        failure.cause,
        failure.exit_code,
        failure.summary,
        first_error(failure, states, 7.0),
        [process_row(s, 0.0) for s in states],
        7.0,
        utc(7.0),
        "/logs",
        ["script.py", "--x"],
    )


def test_the_text() -> None:
    lines = str(broken()).splitlines()
    assert lines[0] == "user: process 1 on hosta raised ValueError: broken"
    assert lines[1].startswith("exit code 1, after 7.0 s, started 20")
    assert lines[3:6] == [
        "  process 1 on hosta: exit code 1",
        "  processes 0, 2 on hosta: ended by the supervisor with SIGTERM",
        "",
    ]
    assert lines[6:10] == [
        "traceback of process 1:",
        "  | Traceback:",
        "  |   here",
        "  | ValueError: broken",
    ]
    assert not any("printed" in line for line in lines)  # the traceback is more precise
    assert lines[-1] == "logs and report: /logs"


def test_a_traceback_that_the_terminal_has_is_not_printed_again() -> None:
    report = broken()
    assert report.first_error is not None
    assert "traceback of" in report.to_text(above=True)  # the program has printed something else
    printed = {**report.first_error, "log_tail": report.first_error["traceback"]}
    text = replace(report, first_error=printed).to_text(above=True)
    assert "traceback of" not in text
    assert "last lines" not in text
    assert text.startswith("user: process 1 on hosta raised ValueError: broken")


def test_last_lines_that_the_terminal_has_are_not_printed_again() -> None:
    """They once stood twice: as the program printed them, and in the report."""
    report = broken()
    error = {**(report.first_error or {}), "traceback": "", "log_tail": "one\nerror: two\n"}
    report = replace(report, first_error=error)
    assert "  | error: two\n" in report.to_text()
    assert "error: two" not in report.to_text(above=True)


def test_control_characters_do_not_reach_the_terminal() -> None:
    report = broken()
    hides = "\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m \x1b]8;; \x00\x9b2J \x7f\t\u202eend\r\n"
    error = {**(report.first_error or {}), "traceback": "", "log_tail": hides}
    text = replace(report, first_error=error, summary=f"raised {hides[:4]}X").to_text()
    assert text.startswith("user: raised X\n")
    assert "  | red \\x1b]8;; \\x00\\x9b2J \\x7f\t\\u202eend\n" in text


def test_the_text_without_a_traceback() -> None:
    report = broken()
    assert report.first_error is not None
    error = {**report.first_error, "traceback": None, "log_tail": "\n".join(map(str, range(99)))}
    error["stacks"] = "Thread 1:\n  waits"
    text = replace(report, first_error=error, refused=["a connection from x: why"]).to_text()
    assert "last lines that process 1 printed:\n  | 59\n" in text  # 40 lines
    assert "  | 98\n\nPython stacks of process 1:\n  | Thread 1:\n  |   waits\n" in text
    assert "\nrefused: a connection from x: why\n" in text


def test_a_process_that_raised_has_no_stacks_beside_its_traceback() -> None:
    report = broken()
    assert report.first_error is not None
    assert report.first_error["traceback"]
    error = {**report.first_error, "stacks": "Thread 1:\n  waits"}
    for above in (False, True):
        assert "Python stacks" not in replace(report, first_error=error).to_text(above=above)


def test_a_traceback_that_process_0_printed_is_not_repeated() -> None:
    report = broken()
    assert not report.on_process_0
    rows = [{**row, "error": report.processes[1]["error"]} for row in report.processes]
    assert replace(report, processes=rows).on_process_0
    assert broken(culprit=0).on_process_0


GLOO_PARTS = (
    *("[Gloo] Rank ", "3", " is connected to ", "7", " peer ranks. "),
    *("Expected number of connected peer ranks is : ", "7", "\n"),
)
GLOO = "".join(GLOO_PARTS)


def test_the_text_has_the_program_s_own_lines() -> None:
    """What Gloo prints of its connections is counted, also if it stands within a line."""
    report = broken()
    error = {**(report.first_error or {}), "traceback": None}
    printed = f"{GLOO}{GLOO}step {GLOO}1\nGloo is a library\n"
    text = replace(report, first_error={**error, "log_tail": printed}).to_text()
    wanted = "last lines that process 1 printed (without 3 lines of Gloo):\n  | step 1\n  | Gloo is"
    assert wanted in text
    assert "last lines" not in replace(report, first_error={**error, "log_tail": GLOO}).to_text()


@hypothesis.given(
    lines=st.lists(
        st.sampled_from([GLOO, "step 1\n", "[1, 2]\n", "5 %\r6 %\r", "[\n", "[Gl\n", "\n"])
    ),
    cuts=st.lists(st.integers(0, 400)),
)
def test_a_terminal_shows_what_is_the_program_s_own(lines: list[str], cuts: list[int]) -> None:
    """However the output is cut into chunks; a whole line of the program's waits for nothing."""
    text, own = "".join(lines), Own()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = "".join(own.take(text[a:b]) for a, b in itertools.pairwise(places))
    assert (shown + own.take("", final=True)) == "".join(x for x in lines if x != GLOO)
    assert own.take("step 2\n") == "step 2\n"


@hypothesis.given(turns=st.lists(st.integers(0, 1), max_size=16))
def test_mixed_lines_of_gloo_are_left_out(turns: list[int]) -> None:
    """Two threads print in turns, part by part; a number alone on a line may be the program's."""
    threads = iter(GLOO_PARTS), iter(GLOO_PARTS)
    mixed = "".join(next(threads[turn], "") for turn in turns) + "".join(chain(*threads))
    text, _ = own_lines(f"step 1\n{mixed}step 2\n")
    assert re.fullmatch(r"step 1\n(\d*\n)*step 2\n", text), (mixed, text)


def test_mutual_tls_is_named_only_where_it_could_be_on(monkeypatch: pytest.MonkeyPatch) -> None:
    report = replace(broken(), mutual_tls="off: jax 0.10.2 has none")
    assert "TLS" not in report.to_text()
    monkeypatch.setattr(coordinator, "package_version", lambda _: "0.12.0")
    note = off_note("jax", 2, "--no-mtls")
    assert (
        note == "mutual TLS is off (--no-mtls): whoever reaches JAX's coordinator can end the run"
    )
    assert f"\n{note}\n" in replace(report, notes=[note]).to_text()
    assert off_note("jax", 1, "one process") == off_note("jax", 2, "") == ""
    assert off_note("reactant", 2, "Reactant's coordinator has none") == ""
    monkeypatch.setattr(coordinator, "package_version", lambda _: "0.10.2")
    assert off_note("jax", 2, "PYREACTANT_MTLS=0") == ""


def test_a_large_run_shows_what_broke_it_and_what_did_not_end_well() -> None:
    report = broken(1000, culprit=500)
    lines = report.to_text().splitlines()
    assert lines[3] == "  process 500 on hosta: exit code 1"
    everyone = "processes 0-499, 501-999 on hosta: ended by the supervisor with SIGTERM"
    assert lines[4:6] == [f"  {everyone}", ""]
    assert len(report.to_dict()["processes"]) == 1000
    rows = [{**row, "exit_code": 0, "state": "exit code 0"} for row in report.processes]
    rows[700] = {**report.processes[700], "by_supervisor": False, "state": "killed by SIGTERM"}
    shown = replace(report, processes=rows, first_error=None).to_text().splitlines()
    assert shown[3] == "  process 700 on hosta: killed by SIGTERM"
    assert shown[4] == "  processes 0-699, 701-999 on hosta: exit code 0"
    rows = [{**row, "state": f"exit code {row['index']}"} for row in rows]
    many = replace(report, processes=rows).to_text().splitlines()
    assert many[3] == "  process 500 on hosta: exit code 500"
    assert many[19] == "  and 984 more, in report.json"


def test_json(tmp_path: Path) -> None:
    report = broken()
    assert report.write(tmp_path / "new")
    read = json.loads((tmp_path / "new/report.json").read_text())
    assert read == {**report.to_dict(), "restarts": [], "stalls": [], "refused": [], "notes": []}
    assert (read["schema"], read["cause"], read["exit_code"]) == (1, "user", 1)
    assert read["first_error"]["exception"] == "ValueError"
    assert read["first_error"]["seconds_before_end"] == 2.0
    assert read["processes"][1]["error"]["message"] == "broken"
    assert (tmp_path / "new/report.txt").read_text() == report.to_text()
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["report.json", "report.txt"]


def test_what_is_no_valid_text_is_written_all_the_same(tmp_path: Path) -> None:
    report = replace(broken(), summary="\ud800 │ ü")
    assert report.write(tmp_path, "report-process-3")
    assert json.loads((tmp_path / "report-process-3.json").read_text())["summary"] == "\ud800 │ ü"
    assert "user: \\ud800 │ ü" in (tmp_path / "report-process-3.txt").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert not broken().write(tmp_path / "file")
    broken().write(tmp_path)
    before = (tmp_path / "report.json").read_bytes()

    opens = Path.open

    def full(path: Path, mode: str = "r", **more: Any) -> Any:
        file = opens(path, mode, **more)

        def half(lines: Iterable[str]) -> None:
            content = "".join(lines)
            file.write(content[: len(content) // 2])
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(file, "writelines", half)
        return file

    monkeypatch.setattr(Path, "open", full)
    assert not broken(5).write(tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "report.json", "report.txt"]
    close_terminals()
    assert capfd.readouterr().err.splitlines() == [
        f"pyreactant: the report cannot be written to {tmp_path}/file (File exists)",
        f"pyreactant: {tmp_path}/report.txt: cannot be written (No space left on device)",
    ]
