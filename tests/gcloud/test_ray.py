"""`pyreactant tpu create --ray`: the stand-in API and real sshd; Ray itself is recorded."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import TpuApi

RAY = """#!/bin/bash
# The interpreter of the VMs: all but Ray is real.
if [[ $1 == -c ]]; then exec {python} "$@"; fi
if [[ -e {folder}/broken ]]; then echo "no such node" >&2; exit 1; fi
printf '%s\\n' "$RAY_AUTH_MODE $*" >>{folder}/ray.log
cat "$HOME/.ray/auth_token" >>{folder}/tokens
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cloud]:
    with cloud(tmp_path, TpuApi(workers=hosts_of), 2) as found:
        python = tmp_path / "python"
        python.write_text(RAY.format(python=sys.executable, folder=tmp_path))
        python.chmod(0o755)
        yield found


def create(made: Cloud) -> tuple[int, str]:
    options = made.run_options()
    slices = options[options.index("--topology") :]
    reach = [word for word in options if word.startswith("--ssh-flag=-p")]
    slices = slices[: slices.index("--platform")] if "--platform" in slices else slices
    python = str(made.folder / "python")
    return made.run("create", *slices, *reach, "--ray", "--python", python)


def test_a_cluster_on_new_slices(made: Cloud) -> None:
    """Worker 0 is the head; the token is only in files that the user alone can read."""
    code, output = create(made)
    assert code == 0, output
    assert len(made.api.resources) == 1, "the slices are kept"
    assert "export RAY_ADDRESS=ray://127.0.0.1:10001" in output
    (file,) = made.state.glob("ray/*.token")
    token = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"export RAY_AUTH_TOKEN_PATH={file}" in output
    assert token not in output
    start = "token -m ray.scripts.scripts start --disable-usage-stats"
    assert (made.folder / "ray.log").read_text().splitlines() == [
        f"{start} --head --port=6379 --node-ip-address=127.0.0.2 --include-dashboard=false",
        f"{start} --address=127.0.0.2:6379",
    ]
    assert (made.folder / "tokens").read_text() == token * 2
    assert made.workers is not None
    for home in made.workers.folder.glob("home-*"):
        assert stat.S_IMODE((home / ".ray" / "auth_token").stat().st_mode) == 0o600


def test_slices_are_deleted_if_ray_does_not_start(made: Cloud) -> None:
    (made.folder / "broken").touch()
    code, output = create(made)
    assert code == 6, output
    assert "test worker 0 (ray) ended with exit code 1: no such node" in output
    assert made.api.left() == []
