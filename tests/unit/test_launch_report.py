"""The report: JSON for programs and text for people; each file is complete or absent."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyreactant.launch import RunReport
from pyreactant.launch._judge import find_failure
from pyreactant.launch._output import close_terminals
from pyreactant.launch._report import first_error, process_row, utc
from pyreactant.launch._state import ProcessState


def broken(count: int = 3, culprit: int = 1, host: str = "hosta") -> RunReport:
    """A run in which one process raises, and the supervisor ends the others."""
    states = [ProcessState(i, host, log=f"/logs/process-{i}.log") for i in range(count)]
    for state in states:
        state.enter("initialized", 1.0)
        if state.index == culprit:
            state.apply(
                {
                    "type": "error",
                    "exception": "ValueError",
                    "message": "broken",
                    "traceback": "Traceback:\n  here\nValueError: broken\n",
                },
                5.0,
            )
        code = 1 if state.index == culprit else -15
        state.apply({"type": "exited", "code": code, "log_tail": "printed\n"}, 6.0)
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
        "  process 0 on hosta: killed by SIGTERM",
        "  process 1 on hosta: exit code 1",
        "  process 2 on hosta: killed by SIGTERM",
    ]
    assert lines[7:11] == [
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


def test_control_characters_do_not_reach_the_terminal() -> None:
    report = broken()
    hides = "\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m \x1b]8;; \x00\x9b2J \x7f\tend\r\n"
    error = {**(report.first_error or {}), "traceback": "", "log_tail": hides}
    text = replace(report, first_error=error, summary=f"raised {hides[:4]}X").to_text()
    assert text.startswith("user: raised X\n")
    assert "  | red \\x1b]8;; \\x00\\x9b2J \\x7f\tend\n" in text


def test_the_text_without_a_traceback() -> None:
    report = broken()
    assert report.first_error is not None
    error = {**report.first_error, "traceback": None, "log_tail": "\n".join(map(str, range(99)))}
    error["stacks"] = "Thread 1:\n  waits"
    text = replace(report, first_error=error, refused=["a connection from x: why"]).to_text()
    assert "last lines it printed of process 1:\n  | 59\n" in text  # 40 lines
    assert "  | 98\n\nPython stacks of process 1:\n  | Thread 1:\n  |   waits\n" in text
    assert "\nrefused: a connection from x: why\n" in text


def test_a_large_run_shows_what_broke_it_and_what_did_not_end_well() -> None:
    report = broken(1000, culprit=500)
    lines = report.to_text().splitlines()
    assert lines[3] == "  process 500 on hosta: exit code 1"
    assert lines[4] == "  process 0 on hosta: killed by SIGTERM"
    assert lines[19] == "  and 984 more, in report.json"
    assert len(report.to_dict()["processes"]) == 1000
    rows = [{**row, "exit_code": 0, "state": "exit code 0"} for row in report.processes]
    rows[700] = dict(report.processes[700])
    shown = replace(report, processes=rows, first_error=None).to_text().splitlines()
    assert shown[3] == "  process 700 on hosta: killed by SIGTERM"
    assert shown[4] == "  process 0 on hosta: exit code 0"


def test_json(tmp_path: Path) -> None:
    report = broken()
    assert report.write(tmp_path / "new")
    read = json.loads((tmp_path / "new/report.json").read_text())
    assert read == {**report.to_dict(), "restarts": [], "stalls": [], "refused": []}
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

    def half(path: Path, content: str, **_: object) -> None:
        with path.open("w") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_text", half)
    assert not broken(5).write(tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "report.json", "report.txt"]
    close_terminals(60)
    assert capfd.readouterr().err.splitlines() == [
        f"pyreactant: the report cannot be written to {tmp_path}/file (File exists)",
        f"pyreactant: {tmp_path}/report.txt: cannot be written (No space left on device)",
    ]
