"""Requests that are refused before anything is created."""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreactant import FileError, InvalidArgumentError
from pyreactant.runs.queued.job import Job, SliceSettings, check_size
from pyreactant.runs.queued.reach import SshOptions
from pyreactant.runs.queued.workers import check_program
from tests import harness
from tests.gcloud.cloud import REQUEST, slice_request
from tests.harness import REPOSITORY, environment, pyreactant


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"project": "<project id>"},
            "PROJECT is still the placeholder '<project id>'; replace it",
        ),
        ({"name": ""}, "QR_ID must be a letter, then up to 62 lower-case .*; got ''"),
        ({"name": "a b"}, "QR_ID must be a letter, then up to 62 lower-case .*; got 'a b'"),
        ({"name": "x;rm -rf ~"}, "QR_ID must be a letter"),
        ({"name": "a\nb"}, "QR_ID must be a letter"),
        ({"project": "$(id)"}, "PROJECT must be a project's id"),
        ({"zone": "asia-northeast1-b --x"}, "ZONE must be a zone, such as asia-northeast1-b"),
        ({"zone": "`x`"}, "ZONE must be a zone"),
        ({"runtime_version": "v2|x"}, "RUNTIME_VERSION must be a TPU VM image"),
        ({"slice_count": 0}, "SLICE_COUNT must be a whole number from 1 to 512, got 0"),
        ({"slice_count": "two"}, "SLICE_COUNT must be a whole number from 1 to 512, got 'two'"),
        ({"accelerator_type": "v6e-17"}, "no Cloud TPU slice is called 'v6e-17'; the nearest are"),
        (
            {"accelerator_type": "ct6e-standard-4t:2x4"},
            "must be a slice of Cloud TPU, got 'ct6e-standard-4t:2x4', which has 2x4 chips, 4 on "
            "each VM; Cloud TPU's v6e-8 has 2x4 chips, 8 on each VM: name that, or use GKE",
        ),
        ({"accelerator_type": "tpu-v5p-slice:4x4x16"}, "Cloud TPU's v5p-512 has 4x8x8 chips"),
        ({"accelerator_type": "tpu7x-8"}, "tpu7x-8 is not available as a queued resource; use GKE"),
        (
            {"runtime_version": "v2-alpha-tpuv5-lite"},
            "'v2-alpha-tpuv5-lite' is not for v6e-16; use v2-alpha-tpuv6e",
        ),
        ({"provisioning": "cheap"}, "provisioning must be one of on-demand, spot, reserved"),
        ({"lifetime": 3.0}, "lifetime must be from 60 seconds to 7 days, got 3 seconds"),
        ({"valid_for": 1e9}, "valid_for must be from 60 seconds to 7 days"),
        ({"network": "a b"}, "network must be a network's name"),
    ],
)
def test_bad_requests(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        slice_request(**changed)


@pytest.mark.parametrize(
    ("name", "cloud"),
    [
        ("v6e:4x4", "v6e-16"),
        ("v5e-16", "v5litepod-16"),
        ("tpu-v6e-slice:4x4", "v6e-16"),
        ("tpu-v5p-slice:2x2x4", "v5p-32"),
        ("ct6e-standard-8t", "v6e-8"),
    ],
)
def test_any_name_of_a_slice(name: str, cloud: str) -> None:
    """The request, and with it the journal, has Cloud TPU's own name."""
    assert slice_request(accelerator_type=name).accelerator_type == cloud


def test_good_requests() -> None:
    one = slice_request()
    assert (one.slice_count, one.runtime_version, one.nodes) == (1, "v2-alpha-tpuv6e", ("test",))
    two = slice_request(slice_count=2)
    assert (two.nodes, two.topology.hosts) == (("test-0", "test-1"), 8)


@pytest.mark.parametrize(
    ("options", "slices", "message"),
    [
        ({"platform": "gpu"}, {}, "platform must be tpu or cpu, .* got 'gpu'"),
        ({"platform": "TPU"}, {}, "platform must be tpu or cpu, .* got 'TPU'"),
        ({"devices_per_process": 2}, {}, "has all devices of its VM, 4 here; omit"),
        (
            {"size": 4095},
            {},
            "of size 4095 does not fit the 16 devices of v6e-16: blocks must be equal on a mesh of "
            "4 x 4; use size 4092 or 4096",
        ),
        ({"size": 1}, {"slice_count": 2}, "the 32 devices of 2 slices of v6e-16.*use size 8$"),
        (
            {"size": 10**6},
            {},
            "take 11,176 GiB in float32, and the devices have .* GiB; use size [0-9]+ or less",
        ),
        (
            {"size": 9, "platform": "cpu", "devices_per_process": 2},
            {},
            "the 8 devices .*; use size 8 or 12",
        ),
        ({"backend": "jax,jax"}, {}, "backend 'jax' is named twice; name it once"),
    ],
)
def test_jobs_that_fail_before_anything_costs(
    options: dict[str, Any], slices: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        check_size(job(slices, **options))


def job(slices: Mapping[str, int] = MappingProxyType({}), **options: Any) -> Job:
    own = {name: options.pop(name) for name in ("size", "program") if name in options}
    settings = SliceSettings("v6e-16", **options)
    return Job(settings=settings, request=slice_request(**slices), out=Path("out"), **own)


def test_sizes_that_fit() -> None:
    for options in (
        {"size": 4},
        {"platform": "cpu", "size": 4095},
        {"program": ["a.py"], "size": 1},
    ):
        check_size(job(**options))


def test_a_size_is_refused_before_vms_exist(tmp_path: Path) -> None:
    done = pyreactant("crosscheck", "--on", "tpu", "--size", "4095", folder=tmp_path, **REQUEST)
    assert done.returncode == 2, done.stderr
    assert "use --size 4092 or 4096" in done.stderr
    assert not list(tmp_path.iterdir())


@given(
    st.sampled_from(["name", "project", "zone", "accelerator_type", "runtime_version"]),
    st.text(max_size=30),
)
def test_nothing_but_plain_words_gets_through(name: str, text: str) -> None:
    """Every accepted value needs no quotes on a command line."""
    try:
        request = slice_request(**{name: text})
    except InvalidArgumentError:
        return
    for value in (request.name, request.project, request.zone, request.runtime_version):
        assert set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789-._:"), value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SshOptions("telnet"), "reach must be gcloud or ssh, got 'telnet'"),
        (lambda: SshOptions("ssh", "root;x"), "user must be a login name, got 'root;x'"),
        (lambda: SshOptions("ssh", None, ("host",)), "ssh_flags must begin with -, got 'host'"),
    ],
)
def test_bad_ssh_options(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_programs_must_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    check_program(["train.py", "--steps"], [])
    check_program(["-m", "anything"], [])
    with pytest.raises(FileError, match=r"there is no 'no\.py' in"):
        check_program(["no.py"], [])
    with pytest.raises(FileError, match="there is no 'data' in"):
        check_program(["train.py"], [Path("data")])
    with pytest.raises(InvalidArgumentError, match="must be below the working directory"):
        check_program([str(tmp_path / "train.py")], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--network", "a/../b", "--network must be a network's name; got 'a/../b'"),
        ("--subnetwork", "/a", "--subnetwork must be a subnetwork's name; got '/a'"),
        ("--user", "a b", "--user must be a login name, got 'a b'"),
        ("--reach", "telnet", "--reach must be gcloud or ssh, got 'telnet'"),
        ("--ssh-flag", "p22", "--ssh-flag must begin with -, got 'p22'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "crosscheck"])
def test_a_dry_run_refuses_what_the_command_would(
    command: str, option: str, value: str, message: str
) -> None:
    words = {"run": ["--", "python", "-c", "pass"], "crosscheck": []}[command]
    argv = [sys.executable, "-m", "pyreactant", command, "--on", "tpu", "--dry-run"]
    ran = harness.run([*argv, f"{option}={value}", *words], env=environment(**REQUEST))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"error: {message}" in ran.stderr


@pytest.mark.parametrize("network", ["default", "projects/a.com:b-1/global/networks/n-2"])
def test_names_of_networks(network: str) -> None:
    assert slice_request(network=network).network == network


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["crosscheck", "--on", "tpu", "--dry-run"], 0, "v6e-16"),
        (["tpu", "create", "--lifetime", "2h", "--dry-run"], 0, "keep       until tpu delete, or "),
        (["tpu", "gc"], 3, "install it with: python -m pip install 'pyreactant[tpu]'"),
    ],
)
def test_without_googles_client(command: list[str], code: int, message: str) -> None:
    """A plan needs no client; every other command reports the missing package."""
    start = "import sys; sys.modules['requests'] = None; from pyreactant.cli import main; main()"
    ran = harness.run([sys.executable, "-c", start, *command], env=environment(**REQUEST))
    assert ran.returncode == code, ran.stderr
    assert message in ran.stdout + ran.stderr


def test_every_dependency_is_installed_on_the_vms() -> None:
    """gcloud/requirements.txt is made by hand from pyproject.toml."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = {re.split("[^a-z0-9-]", line)[0] for line in project["dependencies"]}
    lines = (REPOSITORY / "gcloud" / "requirements.txt").read_text().splitlines()
    assert wanted <= {line.partition("==")[0] for line in lines}
