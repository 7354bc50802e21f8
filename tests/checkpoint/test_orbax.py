"""The table of docs/state.md: versions of Orbax that read our checkpoints, and whose we read."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from tests import harness

pytestmark = [pytest.mark.only("jax"), pytest.mark.usefixtures("backend")]

OLDER = "PYREACTANT_TEST_ORBAX"

READS = """
import sys, numpy as np, orbax.checkpoint as ocp
from orbax.checkpoint.experimental import v1

folder, older = sys.argv[1], ocp.__version__.startswith("0.11.")
assert older == (sys.argv[2] == "older"), ocp.__version__
load = v1.load_pytree if older else v1.load

def check(found):
    assert np.array_equal(found["w"], np.arange(64, dtype=np.float32).reshape(8, 8)), found
    assert found["l"][1][0] == 2.5 and found["t"] == "text" and found["n"] == 4, found

for item in ("state", "items", "pytree", "default"):
    steps = f"{folder}/{item}"
    check(ocp.StandardCheckpointer().restore(f"{steps}/7/{item}"))
    manager, standard = ocp.CheckpointManager(steps), ocp.args.StandardRestore()
    if item == "default":
        check(manager.restore(7, args=standard))
    else:
        check(manager.restore(7, args=ocp.args.Composite(**{item: standard}))[item])
    if item == "pytree" or not older:
        check(load(f"{steps}/7"))

tree = {"w": np.arange(6.0).reshape(2, 3), "l": [np.ones(2), None], "n": 3}
plain = ocp.StandardCheckpointer()
plain.save(f"{folder}/plain", tree)
plain.wait_until_finished()
manager = ocp.CheckpointManager(f"{folder}/managed")
manager.save(5, args=ocp.args.StandardSave(tree))
manager.wait_until_finished()
"""


@pytest.mark.parametrize("version", ["installed", "older"])
def test_a_version_of_orbax(version: str, tmp_path: Path) -> None:
    settings = harness.environment(JAX_PLATFORMS="cpu")
    if version == "older":
        if not os.environ.get(OLDER):
            pytest.skip(f"{OLDER} names no folder with Orbax 0.11")
        settings["PYTHONPATH"] = os.environ[OLDER]
    sharding = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), ("x", "y"))
    w = pr.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), sharding)
    tree = {"w": w, "l": [np.arange(3), (2.5, {})], "n": 4, "t": "text"}
    for item in ("state", "items", "pytree", "default"):
        with pr.Checkpoints(tmp_path / item, item=item) as checkpoints:
            checkpoints.save(7, tree)
    argv = [sys.executable, "-c", READS, str(tmp_path), version]
    done = harness.run(argv, env=settings, timeout=300)
    assert done.returncode == 0, done.stderr
    for folder in ("plain", "managed/5"):
        found = pr.restore(tmp_path / folder)
        np.testing.assert_array_equal(found["w"], np.arange(6.0).reshape(2, 3))
        assert (found["l"][0].tolist(), found["l"][1], found["n"]) == ([1, 1], None, 3)
