"""Certificates: what they say, how they are sealed, and which are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyreactant.base.errors import FileError, MismatchError, RequirementError
from pyreactant.check.burnin.certificate import (
    Certificate,
    certify,
    check_age,
    check_machine,
    read_certificate,
)
from pyreactant.check.burnin.record import Measure

from .records import alone, member, pair, record

KEY = "a secret of more than sixteen characters"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYREACTANT_SECRET", KEY)


def measures(wrong: int = 0) -> list[Measure]:
    return [alone(0), alone(1, wrong=wrong, where="2 rows"), *pair((0, 1))]


def certificate(wrong: int = 0, partial: str = "", **more: Any) -> Certificate:
    members = (member(0, [0], "n0", ["GPU-a"]), member(1, [1], "n1", ["GPU-b"]))
    return certify(record(measures(wrong), members=members, **more), partial)


def written(folder: Path, made: Certificate) -> Path:
    path = folder / "burnin.json"
    path.write_text(json.dumps(made.data()))
    return path


def test_what_it_says(tmp_path: Path) -> None:
    right = certificate()
    assert right.exit_code == 0
    assert right.to_text().splitlines()[0] == "burnin: 2 of 2 devices passed in 118 s"
    text = " ".join(certificate(wrong=4).to_text(200).split())
    assert "burnin: 1 of 2 devices passed in 118 s device 1 (process 1, host n1): FAILED: " in text
    assert (
        "products of float32: 4 of 100 are wrong (2 rows); the same inputs are right on 0" in text
    )
    assert "not seen: errors that need more than 1m58s, float64, memory" in text
    wrong = certificate(wrong=4)
    assert (wrong.exit_code, wrong.bad_hosts) == (5, ["n1"])
    page = wrong.to_html()
    for word in ("device 1", "failed", "GPU-b", "float64", wrong.sha256):
        assert word in page
    assert read_certificate(written(tmp_path, wrong)) == wrong


def test_a_partial_one_is_marked() -> None:
    lost = certificate(partial="process 1 on n1 was killed")
    assert lost.summary.endswith("; PARTIAL: process 1 on n1 was killed")
    assert lost.exit_code == 0
    short = certificate(rounds=("products of float32", "all-reduce of 1 MiB", "chains"))
    assert short.partial == "the time was too short for chains; give more --minutes"
    assert "rounds that did not run: chains" in short.unseen


def test_every_change_is_seen(tmp_path: Path) -> None:
    path = written(tmp_path, certificate(wrong=4))
    text = path.read_text()
    for old, new in (
        ('"failed"', '"passed"'),
        ('"n1"', '"n2"'),
        ("1800000118", "1900000118"),
        ('"pyreactant burnin certificate"', '"pyreactant burnin certificate", "more": 1'),
        ("GPU-b", "GPU-c"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(FileError, match=r"burnin\.json: was changed after it was sealed"):
            read_certificate(path)


def test_one_that_was_sealed_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = certificate()
    monkeypatch.setenv("PYREACTANT_SECRET", "another secret of more than sixteen")
    theirs = written(tmp_path, certificate())
    monkeypatch.setenv("PYREACTANT_SECRET", KEY)
    said = "is not sealed under this user's key; set PYREACTANT_SECRET as it was at the burn-in"
    with pytest.raises(FileError, match=said):
        read_certificate(theirs)
    data = mine.data() | {"hmac": ""}  # a digest alone, which anyone can make
    theirs.write_text(json.dumps(data))
    with pytest.raises(FileError, match=said):
        read_certificate(theirs)


def test_without_a_key_there_is_the_digest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYREACTANT_SECRET")
    monkeypatch.setenv("PYREACTANT_SECRET_FILE", str(tmp_path / "absent"))
    made = certificate()
    assert made.hmac == ""
    assert "a digest only, which anyone can make" in made.to_html()
    assert read_certificate(written(tmp_path, made)) == made


@pytest.mark.parametrize(
    "text", ["{}", '{"format": "pyreactant burnin certificate", "schema": 1}', "[]", "", '{"a": 1']
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"other\.json: .*burn-in's certificate"):
        read_certificate(path)


def test_age() -> None:
    made, path = certificate(), Path("b.json")
    ended = 1.8e9 + 118
    check_age(made, path, 86400, ended + 86000)
    check_age(made, path, 86400, ended - 60)  # clocks differ
    said = "b.json: the burn-in must have ended within the last 1d, and is 2d old; run: pyreactant"
    with pytest.raises(RequirementError, match=said):
        check_age(made, path, 86400, ended + 2.5 * 86400)
    with pytest.raises(RequirementError, match="and is of the future by this clock"):
        check_age(made, path, 86400, ended - 7200)


def test_machines() -> None:
    path = Path("b.json")
    check_machine(certificate(), path, "n1", ["GPU-b"])
    with pytest.raises(RequirementError, match="must be of this host, n7, and is of n0, n1; run"):
        check_machine(certificate(), path, "n7", [])
    with pytest.raises(RequirementError, match="GPUs of this host, and does not have GPU-x; run"):
        check_machine(certificate(), path, "n1", ["GPU-b", "GPU-x"])
    check_machine(certificate(wrong=1), path, "n0", ["GPU-a"])
    with pytest.raises(MismatchError, match=r"device 1 \(process 1, host n1\) failed its burn-in"):
        check_machine(certificate(wrong=1), path, "n1", ["GPU-b"])
    untested = certify(record([alone(0)], processes=2), "")
    with pytest.raises(RequirementError, match=r"must be tested, and device 1 \(.*\) was not"):
        check_machine(untested, path, "n1", [])
