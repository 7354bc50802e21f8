"""Durations of command lines: what they are, what they show, and what is refused."""

import re

import pytest

from pyreactant.base.duration import duration_text, parse_duration, seconds_word
from pyreactant.runs.queued.job import SliceSettings
from pyreactant.runs.spec import command_line, options_of
from pyreactant.runs.supervisor import RunOptions
from tests.cli.tree import LEAVES

GOOD: dict[str, float] = {
    "90s": 90,
    "2h": 7200,
    "1h30m": 5400,
    "3d": 259200,
    "1d12h": 129600,
    "90": 90,
    "0": 0,
    "10m": 600,
}
GOOD |= {"1.5": 1.5, "0.5h": 1800}


@pytest.mark.parametrize("text", GOOD)
def test_a_duration(text: str) -> None:
    assert parse_duration(text) == GOOD[text]
    assert parse_duration(duration_text(GOOD[text])) == GOOD[text]
    assert parse_duration(seconds_word(GOOD[text])) == GOOD[text]


BAD = ["nan", "inf", "-inf", "-5", "+5", "1e9", "1_0", "²", ".5", "h", "90sec", "30m1h", "1h1h"]
BAD += ["", " ", "1 h", "90s\n", "1h30", "04:00:00", "0x10", "a" * 5000]


@pytest.mark.parametrize("text", BAD)
def test_no_duration(text: str) -> None:
    words = re.escape(f"it must be a duration, such as 90s, got {text[:40]!r}")
    with pytest.raises(ValueError, match=words):
        parse_duration(text)


def test_a_number_alone_where_it_was_hours_or_days() -> None:
    assert parse_duration("6h", bare="h") == 6 * 3600
    with pytest.raises(ValueError, match="it needs a unit; write 6h for 6 hours"):
        parse_duration("6", bare="h")
    with pytest.raises(ValueError, match=r"it needs a unit; write 0\.5d for 0\.5 days"):
        parse_duration("0.5", bare="d")


def test_longer_than_a_clock() -> None:
    with pytest.raises(ValueError, match="it must be at most 10000d, got '10001d'"):
        parse_duration("10001d")


@pytest.mark.parametrize("seconds", [1e-7, 0.05, 1e6, 86400.0, 12345678.5])
def test_the_words_of_a_command_line_are_exact(seconds: float) -> None:
    """As the command line of a job has them: no exponent, which the parser refuses."""
    options = RunOptions(program=["true"], grace=seconds)
    assert [float(word.removeprefix("--grace=")) for word in command_line(options)] == [seconds]
    assert parse_duration(command_line(options)[0].removeprefix("--grace=")) == seconds


NUMBERS = ("--memory", "--minutes", "--num-cpus", "--typical")
"""Options that are other numbers, or have their unit in their name."""


def test_every_float_of_a_place_is_a_duration_or_a_known_number() -> None:
    """A new option in seconds would otherwise take no units."""
    for name, command in LEAVES.items():
        for option in command.params:
            if option.bare_type() == "float":
                assert option.metavar == "TIME" or option.opts[0] in NUMBERS, (name, option)
    units = {name: option.unit for name, (option, _) in options_of(SliceSettings).items()}
    assert (units["--lifetime"], units["--valid-for"], units["--wait"]) == ("h", "h", "s")
