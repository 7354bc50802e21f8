"""The table: it has every row, no failing check breaks it, and it shows no secret."""

import json
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.doctor import diagnose, diagnosis
from pyreactant.doctor.check import Check, CheckResult, Diagnosis, Machine, without_secrets
from pyreactant.doctor.diagnosis import Row, run_check
from tests import harness
from tests.doctor.machines import answering, interpreter, jax_packages, machine
from tests.doctor.test_command import NOT_SETTLED
from tests.harness import environment

# Programs may read these names: a name changes only with the schema.
ROWS = {
    "installation": ["Python", "pyreactant", "numpy"],
    "JAX": ["jax", "jaxlib", "GPU plugins", "libtpu"],
    "Reactant": ["juliacall", "Julia", "Julia project", "Reactant", "Reactant_jll"],
    "accelerators": ["NVIDIA driver", "GPU users", "TPU"],
    "runtimes": ["JAX devices", "Reactant devices", "XLA runtime", "usable runtime"],
    "settings": [
        "proxies",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "XLA_FLAGS",
        "LIBTPU_INIT_ARGS",
        "GPU memory",
        "hidden devices",
        "compile cache",
    ],
    "machine": ["host name", "clock", "/dev/shm", "open files", "disk"],
    "launch": ["who am I", "Slurm", "gcloud"],
}


def test_the_rows_and_their_order(tmp_path: Path) -> None:
    found = diagnose(machine=machine(tmp_path)).to_dict()
    groups: dict[str, list[str]] = {}
    for one in found["checks"]:
        groups.setdefault(one["group"], []).append(one["name"])
    assert groups == ROWS
    assert list(groups) == list(ROWS)


def test_schema(tmp_path: Path) -> None:
    found = json.loads(json.dumps(diagnose(machine=machine(tmp_path)).to_dict(), allow_nan=False))
    assert list(found) == [
        "schema",
        "pyreactant",
        "backend",
        "deep",
        "exit_code",
        "missing",
        "counts",
        "seconds",
        "checks",
    ]
    assert found["schema"] == 1
    assert found["exit_code"] == 3  # this machine has no packages
    assert found["missing"] == ["numpy", "usable runtime"]
    assert sum(found["counts"].values()) == len(found["checks"]) == 35
    for one in found["checks"]:
        assert list(one) == ["name", "group", "status", "required", "found", "mend"]
        assert one["status"] in ("pass", "warn", "fail")
        assert one["found"]


@pytest.mark.parametrize(
    ("backend", "missing"),
    [
        (None, ["numpy", "usable runtime"]),
        ("jax", ["numpy", "jax"]),
        ("reactant", ["numpy", "juliacall"]),
    ],
)
def test_what_is_required(tmp_path: Path, backend: str | None, missing: list[str]) -> None:
    found = diagnose(backend, machine=machine(tmp_path))
    assert [one.name for one in found.missing] == missing
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("status", "backend", "expected"),
    [
        ("pass", "jax", "pass"),
        ("warn", "jax", "warn"),
        ("fail", "jax", "fail"),
        ("fail", None, "fail"),
        ("absent", "jax", "fail"),
        ("absent", "reactant", "warn"),
        ("absent", None, "warn"),
        ("unknown", "jax", "warn"),
        ("unknown", None, "pass"),
    ],
)
def test_status(tmp_path: Path, status: str, backend: str | None, expected: str) -> None:
    row = Row("x", lambda machine: CheckResult(status, "y"), ("jax",))
    made = run_check(machine(tmp_path), backend, "g", row)
    assert made == Check("x", "g", expected, backend == "jax", "y", "")


def test_only_required_failures_count() -> None:
    fails = Check("a", "g", "fail", False, "")
    assert Diagnosis((fails,)).exit_code == 0
    assert Diagnosis((fails, Check("b", "g", "fail", True, ""))).exit_code == 3
    assert Diagnosis((Check("b", "g", "warn", True, ""),)).exit_code == 0


def test_a_check_that_breaks_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(machine: Machine) -> CheckResult:
        raise ZeroDivisionError(f"by {machine.host}")

    rows = tuple(Row(row.name, broken, row.needed_by) for row in diagnosis.BEFORE_RUNTIMES["JAX"])
    monkeypatch.setitem(diagnosis.BEFORE_RUNTIMES, "JAX", rows)
    found = diagnose("jax", machine=machine(tmp_path))
    jax = [one for one in found.checks if one.group == "JAX"]
    assert {(one.status, one.found) for one in jax} == {
        ("warn", "could not be checked: ZeroDivisionError: by node7")
    }
    assert [one.name for one in found.missing] == ["numpy"]


def test_every_check_is_guarded(tmp_path: Path) -> None:
    """On a machine where every query fails there is still a diagnosis."""

    def refuse(*what: object) -> object:
        raise PermissionError("refused")

    here = machine(tmp_path, addresses=refuse, disk=refuse, open_files=refuse, own_address=refuse)
    found = diagnose(machine=here)
    assert len(found.checks) == 35
    refused = [one.name for one in found.checks if "could not be checked" in one.found]
    assert refused == ["open files", "disk"]


def test_a_name_cannot_forge_a_row(tmp_path: Path) -> None:
    row = Row("x", lambda machine: CheckResult("warn", "a\n  pass  y  z", "rm -rf\n/"))
    made = run_check(machine(tmp_path), None, "g", row)
    assert (made.found, made.mend) == ("a pass y z", "rm -rf /")


@pytest.mark.parametrize(
    ("name", "value"), [("backend", "torch"), ("timeout", 0), ("timeout", -1.0)]
)
def test_wrong_arguments(name: str, value: object) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=name):
        diagnose(**{name: value})


SECRETS = {
    "http_proxy": "http://user:pa55word@proxy:3128",
    "HTTPS_PROXY": "http://tok3n@proxy",
    "HF_TOKEN": "hf_abcdef",
    "AWS_SECRET_ACCESS_KEY": "abc/def",
    "GIT_URL": "https://me:hunter22@example.org/x",
    "grpc_proxy": "me:p%40ss@word@proxy:1",
    "no_proxy": "localhost",
}


@pytest.mark.parametrize(
    "secret", ["pa55word", "tok3n", "hf_abcdef", "abc/def", "hunter22", "p%40ss@word", "p@ss@word"]
)
def test_secrets(secret: str) -> None:
    text = f"at localhost: {secret}, {' '.join(SECRETS.values())} and http://x:y@z/ too"
    shown = without_secrets(text, SECRETS)
    assert secret not in shown
    assert "x:y" not in shown
    assert "http://(hidden)@z/ too" in shown
    assert shown.startswith("at localhost: ")


@pytest.mark.parametrize("how", ["error", "log"])
def test_a_runtime_that_tells_secrets(tmp_path: Path, how: str) -> None:
    message = "cannot reach http://user:pa55word@proxy:3128 with pa55word and hf_abcdef"
    python = (
        answering(tmp_path, json.dumps({"error": message}))
        if how == "error"
        else interpreter(tmp_path, f"echo '{message}' >&2; exit 1")
    )
    jax_packages(tmp_path)
    found = diagnose(machine=machine(tmp_path, python=python, environ=SECRETS))
    text = json.dumps(found.to_dict())
    assert "cannot reach (hidden) with (hidden) and (hidden)" in text
    for secret in ("pa55word", "tok3n", "hf_abcdef", "hunter22", "abc/def", "word@proxy"):
        assert secret not in text


def test_without_the_packages_it_looks_for(tmp_path: Path) -> None:
    """The doctor works without the packages, and if one fails during its import."""
    absent = "numpy jax jaxlib tomlkit juliacall juliapkg ml_dtypes google"
    code = (
        f"import json, sys; sys.modules.update(dict.fromkeys({absent!r}.split()));"
        "from pyreactant.doctor import diagnose; print(json.dumps(diagnose('reactant').to_dict()))"
    )
    ran = harness.run([sys.executable, "-c", code], env=environment(**NOT_SETTLED), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert len(json.loads(ran.stdout)["checks"]) == 35
