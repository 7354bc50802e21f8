"""The page of a run: the first failure, the ends of the processes, and their phases."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pyreactant import FileError
from pyreactant.runs.supervisor import RunOptions
from pyreactant.runs.supervisor.output import close_terminals
from tests.launch.runs import FAULTY, run_local
from tests.pages.samples import good_run, run


def bars(page: str) -> list[str]:
    return re.findall(r'class="bar" role="img" aria-label="([^"]*)"', page)


def test_the_first_failure() -> None:
    page = run().to_html()
    assert "Failed: user" in page
    for label, text in (("host", "host2"), ("after", "10 s"), ("while", "running")):
        assert f'data-label="{label}" class="words">{text}<' in page
    assert "<pre>Traceback:" in page
    assert "printed" not in page  # the traceback is more precise
    without = replace(run(), first_error={**(run().first_error or {}), "traceback": None})
    assert "<pre>printed" in without.to_html()


def test_a_process_that_the_supervisor_ended_has_no_look() -> None:
    page = run().to_html()
    ended = "ended by the supervisor with SIGTERM"
    assert f'data-label="end" class="words">{ended}<' in page
    assert f"</span><span>{ended}" not in page  # no sign
    assert "ended by the supervisor after 12 s" in bars(page)[1]
    assert '<i class="colour-6" aria-hidden="true"></i>ended by the supervisor' in page
    row = {**run().processes[0], "exit_code": -9, "by_supervisor": False, "state": "killed"}
    killed = replace(run(), processes=[row]).to_html()
    assert "failed after 12 s" in bars(killed)[0]
    assert "</span><span>killed</span>" in killed


def test_phases_and_ends() -> None:
    shown = bars(run().to_html())
    assert len(shown) == 6
    assert shown[0] == (  # the process that broke the run is the first
        "waiting for the others until 1 s, starting until 3 s, initializing until 4 s, "
        "running until 10.5 s, failed after 10 s"
    )
    assert "0-3, 5" in run().to_html()
    page = good_run().to_html()
    assert bars(page) == [
        "waiting for the others until 1 s, starting until 2 s, running until 3 s, ending until 4 s"
    ]
    for phase, listed in (("ending", True), ("initializing", False), ("failed", False)):
        assert (f"</i>{phase}</li>" in page) == listed  # the legend has only what is shown
    assert "The first failure" not in page


def test_a_large_run_is_cut_with_a_count() -> None:
    page = run(8192, 500).to_html()
    assert len(bars(page)) == 48
    assert "and 8144 more" in page
    assert "0-499, 501-8191" in page
    assert len(page) < 60_000


def test_a_real_run_writes_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = run_local(tmp_path, "-n", "2", "--html", str(page), "--", "sh", "-c", "echo last; exit 3")
    assert ran.code == 1, ran
    text = page.read_text()
    assert "exit code 3" in text
    assert "<pre>last" in text
    assert all("running until" in bar for bar in bars(text))
    times = ran.report["processes"][0]["times"]
    assert 0 <= times["joined"] <= times["spawned"] <= times["exited"] <= ran.report["seconds"]


def test_a_page_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "none" / "page.html"
    assert run().with_page(page, overwrite=False) == run()
    close_terminals()
    assert "page.html: its folder does not exist; create it first" in capfd.readouterr().err


def test_a_run_whose_page_does_not_fit_on_the_disk_is_no_success(tmp_path: Path) -> None:
    ran = run_local(tmp_path, "-n", "2", "--html", "/dev/full", "--", "true")
    assert ran.code == 2, ran
    reason = "--html /dev/full: cannot be written (No space left on device); name another file"
    assert (ran.report["cause"], ran.report["exit_code"]) == ("user", 2)
    assert ran.report["summary"] == reason
    assert f"user: {reason}" in ran.finished[0].log


def test_a_folder_that_is_not_there_is_found_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="its folder does not exist"):
        RunOptions([FAULTY], html=tmp_path / "none" / "page.html")
