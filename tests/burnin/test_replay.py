"""Programs that run twice at every Nth call: right ones go on, and a device that errs is named."""

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.replay import Replayed, check_replay
from pyreactant.arrays.runtimes.runtime import current
from pyreactant.base.errors import InvalidArgumentError, MismatchError
from tests.harness import environment, run

from . import hook
from .hook import Fault
from .hook import environment as with_fault


@pytest.fixture(autouse=True)
def twice(backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs run twice at each second call, and have the hook."""
    if backend != "jax":
        pytest.skip("the hook of these tests is for the runtime jax")
    monkeypatch.setattr(current(), "replay_every", 2)
    remove = hook.install()
    yield
    remove()
    hook.set_fault(None)


def mesh() -> pr.Mesh:
    return pr.Mesh((8,), ("x",))


def rows() -> pr.NamedSharding:
    return pr.NamedSharding(mesh(), ("x",))


def whole() -> pr.NamedSharding:
    return pr.NamedSharding(mesh(), ())


def placed(sharding: pr.NamedSharding, dtype: Any = np.float32) -> Any:
    return pr.device_put(np.arange(128).reshape(16, 8).astype(dtype), sharding)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int8", "bool"])
def test_right_programs_go_on_and_donate(dtype: str) -> None:
    x = placed(rows(), dtype)
    step = pr.compile(lambda a: {"next": a[::-1], "turned": a.T}, x, donate=0)
    for _ in range(5):
        before, x = x, step(x)["next"]
        with pytest.raises(pr.StateError, match="donated"):
            before.gather()
    assert np.array_equal(x.gather(), placed(rows(), dtype).gather()[::-1])


def test_keys_are_digested_by_their_numbers() -> None:
    key = pr.device_put(jax.random.key(3), whole())
    split = pr.compile(lambda k: jax.random.split(k)[1], key, donate=0)
    for _ in range(2):
        key = split(key)


def test_a_device_that_errs_once_is_named() -> None:
    x = placed(rows())
    f = pr.compile(lambda a: a + 17, x)
    hook.set_fault(Fault("flip", device=3, every=3))  # the second of both runs
    f(x)
    said = (
        r"program '<lambda>', call 2: its results had other bits when it was called again, on "
        r"device 3 \(process 0\) only; go on from the last checkpoint without it, and test the "
        "devices with: pyreactant burnin"
    )
    with pytest.raises(MismatchError, match=said):
        f(x)


def test_where_all_parts_differ_all_are_named() -> None:
    x = placed(rows())
    f = pr.compile(lambda a: a + 18, x)
    hook.set_fault(Fault("flip", every=3))
    f(x)
    with pytest.raises(MismatchError, match="on all of its 8 devices, of which one errs or more"):
        f(x)


def test_a_copy_that_is_wrong_each_time_is_named() -> None:
    x = placed(whole())
    f = pr.compile(lambda a: a + 19, x, out_sharding=whole())
    hook.set_fault(Fault("flip", device=5))
    f(x)
    said = r"copies of a result that must be equal differ, on device 5 \(process 0\) only"
    with pytest.raises(MismatchError, match=said):
        f(x)


def test_programs_with_callbacks_run_once() -> None:
    seen = []

    def noted(a: Any) -> Any:
        jax.debug.callback(lambda: seen.append(1))
        return a + 20

    x = pr.device_put(np.float32(1), pr.NamedSharding(pr.Mesh((1,), ("x",), (0,)), ()))
    f = pr.compile(noted, x)
    for _ in range(4):
        f(x).block_until_ready()
    jax.effects_barrier()
    assert len(seen) == 4


def test_a_program_of_a_gpu_that_is_not_deterministic_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = placed(rows())
    f = pr.compile(lambda a: jnp.sin(a) + 21, x)
    real = current().backend
    gpus = [dataclasses.replace(device, platform="gpu") for device in real.devices()]
    backend = SimpleNamespace(
        devices=lambda: gpus, group=real.group, trees=real.trees, block_digests=real.block_digests
    )
    call = SimpleNamespace(donated=lambda _: (), meshes=(mesh(),), program=f.program)
    hook.set_fault(Fault("flip", device=3, every=2))
    twice = Replayed(1, call, f.executable, backend)
    for _ in range(4):
        twice(x.value)
    said = capsys.readouterr().err
    assert said.count("is not deterministic, or a device errs: it is not called twice") == 1
    # One that was deterministic before is not excused.
    hook.set_fault(Fault("flip", device=3, after=2, every=2))
    twice = Replayed(1, call, f.executable, backend)
    twice(x.value)
    with pytest.raises(MismatchError, match="on device 3"):
        twice(x.value)


def test_what_cannot_be_is_refused() -> None:
    assert check_replay(None) == 0
    assert check_replay(3) == 3
    with pytest.raises(InvalidArgumentError, match="PYREACTANT_REPLAY_EVERY must be 1 or more"):
        check_replay(0)


PROGRAM = """
import numpy as np
import pyreactant as pr

pr.initialize()
sharding = pr.NamedSharding(pr.Mesh((-1,), ("x",)), ("x",))
x = pr.device_put(np.ones((8, 8), np.float32), sharding)
f = pr.compile(lambda a: a * 2, x)
for call in range(6):
    print("call", call, flush=True)
    f(x)
"""


def test_a_run_ends_with_5(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    fault = Fault("flip", process=1, every=3)
    plain = environment()
    line = "run --processes 2 --devices-per-process 2 --platform cpu --replay-every 2 -- train.py"
    ended = run(
        [sys.executable, "-m", "pyreactant", *line.split()],
        cwd=tmp_path,
        env={**plain, **with_fault(fault, plain["PYTHONPATH"])},
        timeout=280,
    )
    assert ended.returncode == 5, ended.stderr
    assert "call 1" in ended.stdout
    assert "call 2" not in ended.stdout
    said = " ".join(ended.stderr.split())
    assert "on devices 2 (process 1), 3 (process 1), of which one errs or more; go on" in said
    refused = run(
        [sys.executable, "-m", "pyreactant", *line.replace("every 2", "every 0").split()],
        cwd=tmp_path,
        env=plain,
    )
    assert refused.returncode == 2
    assert "--replay-every must be 1 to 1000000000, got 0" in refused.stderr


ON_REACTANT = """
import sys
import numpy as np
import pyreactant as pr
from pyreactant.arrays.backend import Executable
from pyreactant.arrays.runtimes.runtime import current

pr.initialize()
rows = pr.NamedSharding(pr.Mesh((-1,), ("x",)), ("x",))
init, calls = Executable.__init__, 0


def with_fault(self, run, *arguments, **named):
    init(self, lambda *values: once_wrong(run(*values)), *arguments, **named)


def once_wrong(results):
    global calls
    calls += 1
    if calls != int(sys.argv[1]):
        return results
    backend = current().backend
    (value,) = results
    blocks = {s.index[0].start: np.array(s.data) for s in backend.addressable_shards(value)}

    def read(index):
        block = blocks[index[0].start]
        block[0, 0] += index[0].start == 2  # that of device 1
        return block

    return [backend.from_blocks((4, 4), np.dtype("float32"), rows, read)]


Executable.__init__ = with_fault
x = pr.device_put(np.ones((4, 4), np.float32), rows)
one = pr.device_put(np.eye(4, dtype=np.float32), rows)
program = pr.compile(pr.Program("product", julia="*"), x, one, out_sharding=rows, donate=0)
for call in range(1, 6):
    print("call", call, flush=True)
    x = program(x, one)
assert np.array_equal(x.gather(), np.ones((4, 4)))
"""


@pytest.mark.julia
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("wrong", "code"), [(0, 0), (5, 5)])
def test_on_reactant(named_julia: None, tmp_path: Path, wrong: int, code: int) -> None:
    """At the fourth call both runs differ on one device; the host digests what it reads."""
    (tmp_path / "train.py").write_text(ON_REACTANT)
    line = "run --backend reactant --platform cpu --devices-per-process 2 --replay-every 2"
    argv = [sys.executable, "-m", "pyreactant", *line.split(), "--", "train.py", str(wrong)]
    ended = run(argv, cwd=tmp_path, env=environment(), timeout=1800)
    assert ended.returncode == code, ended.stderr
    seen = [int(number) for number in re.findall("call ([0-9])", ended.stdout)]
    assert seen == [1, 2, 3, 4, 5][: 5 if code == 0 else 4]
    said = " ".join(ended.stderr.split())
    assert code == 0 or "when it was called again, on device 1 (process 0) only" in said
