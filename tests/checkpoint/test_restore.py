"""Save and restore in one process: values, Orbax on the other side, damage, and bad input."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays import dtypes
from pyreactant.arrays.checkpoint import commit, format, store, write
from pyreactant.arrays.checkpoint.bucket import one_context
from pyreactant.arrays.checkpoint.commit import writer_of
from pyreactant.arrays.checkpoint.folder import list_steps
from pyreactant.arrays.checkpoint.inspect import verify
from pyreactant.base import files
from tests import harness
from tests.checkpoint import trees

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def xy(backend: str) -> pr.NamedSharding:
    return pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), ("x", "y"))


def test_every_type_comes_back_bit_for_bit(xy: pr.NamedSharding, tmp_path: Path) -> None:
    pr.save(tmp_path / "c", trees.tree_of(xy))
    trees.check(pr.restore(tmp_path / "c", like=trees.tree_of(xy)), xy)
    plain = pr.restore(tmp_path / "c")
    for name, array in plain["typed"].items():
        assert trees.bits(array) == trees.bits(trees.values(name, (8, 8)))
    assert plain["layer"]["b"] is None
    assert plain["pair"] == {"first": [np.float32(3)], "second": ()}
    assert plain["numbers"] == [3, 2.5, True, "text", {}]
    assert list(tmp_path.iterdir()) == [tmp_path / "c"]


def test_a_part_onto_other_meshes(xy: pr.NamedSharding, tmp_path: Path) -> None:
    w = np.arange(64, dtype=np.float32).reshape(8, 8)
    pr.save(tmp_path / "c", {"w": pr.device_put(w, xy), "other": np.zeros(3)})
    some = pr.NamedSharding(pr.Mesh((2,), ("d",), [6, 1]), (None, "d"))
    aval = pr.Aval((8, 8), np.dtype(np.float32), some)
    for found in (
        pr.restore(tmp_path / "c", like={"w": aval}),
        pr.restore(tmp_path / "c", like={"w": w}, shardings=some),
        pr.restore(tmp_path / "c", shardings={"w": some, "other": None}),
    ):
        assert found["w"].sharding == some
        np.testing.assert_array_equal(found["w"].gather(), w)
    assert type(found["other"]) is np.ndarray


@pytest.mark.only("jax")
def test_arrays_of_jax_and_keys(xy: pr.NamedSharding, tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp
    import optax

    rows = pr.NamedSharding(xy.mesh, ("x",)).to_jax()

    def start() -> Any:
        w = {"w": jnp.ones((8, 4)), "half": jnp.ones((8,), jnp.bfloat16)}
        return {
            "w": w,
            "opt": optax.adam(1e-3).init(w),
            "keys": jax.random.split(jax.random.key(3), 4),
        }

    state = {**start(), "key": jax.random.key(5, impl="rbg")}
    state["keys"] = jax.device_put(state["keys"], rows)
    pr.save(tmp_path / "c", state)
    like = {**jax.eval_shape(start), "key": state["key"]}
    found = pr.restore(tmp_path / "c", like=like, shardings={**dict.fromkeys(like), "w": rows})
    assert found["w"]["w"].sharding == rows
    assert type(found["opt"][0]) is type(state["opt"][0])
    assert jax.random.key_impl(found["key"]) == "rbg"
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(found), strict=True):
        assert one.dtype == other.dtype
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    placed = pr.restore(tmp_path / "c", like={"keys": state["keys"]})["keys"]
    assert placed.sharding == rows
    with pytest.raises(pr.InvalidArgumentError, match=r"is keys of rbg.*keys of threefry2x32"):
        pr.restore(tmp_path / "c", like={"key": jax.random.key(0)})


@pytest.mark.only("jax")
def test_a_train_state_of_flax(xy: pr.NamedSharding, tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen
    from flax.training.train_state import TrainState

    model, whole = linen.Dense(8, param_dtype=jnp.bfloat16), pr.NamedSharding(xy.mesh, ())

    def start() -> TrainState:
        params = model.init(jax.random.key(0), jnp.ones((1, 8)))["params"]
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
        return TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    state = start()
    state = state.apply_gradients(grads=jax.tree.map(jnp.ones_like, state.params))
    pr.save(tmp_path / "c", state)
    found = pr.restore(tmp_path / "c", like=jax.eval_shape(start), shardings=whole.to_jax())
    assert type(found) is TrainState
    assert found.params["kernel"].sharding == whole.to_jax()
    assert int(found.step) == 1
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(found), strict=True):
        assert (np.asarray(one) == np.asarray(other)).all()
    again = found.apply_gradients(grads=jax.tree.map(jnp.ones_like, found.params))
    assert int(again.step) == 2


@pytest.fixture(scope="module")
def of_orbax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step that Orbax's manager wrote, with zarr 2 and its defaults."""
    folder = tmp_path_factory.mktemp("orbax")
    code = (
        "import sys, jax, numpy as np, orbax.checkpoint as ocp\n"
        "tree = {'w': jax.numpy.arange(24.).reshape(4, 6), 'n': 3, 'l': [np.ones(2), None],\n"
        "        'b': jax.numpy.ones(3, 'bfloat16'), 'k': jax.random.key(7)}\n"
        "manager = ocp.CheckpointManager(sys.argv[1])\n"
        "manager.save(5, args=ocp.args.Composite(state=ocp.args.StandardSave(tree)))\n"
        "manager.wait_until_finished()\n"
        "plain = ocp.StandardCheckpointer()\n"
        "plain.save(sys.argv[1] + '/plain', tree)\n"
        "plain.wait_until_finished()\n"
        "pytree = ocp.PyTreeCheckpointer()\n"
        "pytree.save(sys.argv[1] + '/single', np.arange(3.))\n"
        "pytree.save(sys.argv[1] + '/text', {'z': np.zeros(3), 't': 'text'})\n"
    )
    argv = [sys.executable, "-c", code, str(folder)]
    done = harness.run(argv, env=harness.environment(JAX_PLATFORMS="cpu"), timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.only("jax")
@pytest.mark.parametrize("where", ["5", "5/state", "plain"])
def test_what_orbax_wrote_is_read(where: str, of_orbax: Path) -> None:
    import jax

    found = pr.restore(of_orbax / where)
    np.testing.assert_array_equal(found["w"], np.arange(24.0).reshape(4, 6))
    assert found["n"] == 3
    assert found["l"][1] is None
    assert found["b"].dtype.name == "bfloat16"
    assert jax.random.key_impl(found["k"]) == "threefry2x32"


@pytest.mark.only("jax")
def test_a_single_array_of_orbax(of_orbax: Path) -> None:
    for like in (None, np.zeros(3)):
        assert pr.restore(of_orbax / "single", like=like).tolist() == [0, 1, 2]


@pytest.mark.only("jax")
def test_older_versions_of_orbax_left_out_chunks_of_zeros(of_orbax: Path, tmp_path: Path) -> None:
    import tensorstore as ts

    folder = shutil.copytree(of_orbax / "text", tmp_path / "c")
    base = {"driver": "file", "path": f"{folder}/"}
    database = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    database.write("z/0", None).result()
    with pytest.raises(pr.MismatchError, match="array z, block"):
        pr.restore(folder)
    metadata = json.loads((folder / "_METADATA").read_text())
    del metadata["store_array_data_equal_to_fill_value"]
    (folder / "_METADATA").write_text(json.dumps(metadata))
    assert pr.restore(folder)["z"].tolist() == [0, 0, 0]


@pytest.mark.only("jax")
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("array_metadatas/process_0", "{}", "no entry 'array_metadatas'"),
        ("_strings.json", "{}", "the text t is missing"),
        ("_strings.json", "3", "its metadata cannot be read"),
    ],
)
def test_damaged_files_of_orbax_are_named(
    file: str, text: str, words: str, of_orbax: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(of_orbax / "text", tmp_path / "c")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    with pytest.raises(pr.MismatchError, match=words):
        pr.restore(folder)
    assert [words in verdict.damage for verdict in verify(folder)] == [True]


@pytest.mark.only("jax")
def test_orbax_reads_what_was_written(xy: pr.NamedSharding, tmp_path: Path) -> None:
    w = np.arange(64, dtype=np.float32).reshape(8, 8)
    tree = {"w": pr.device_put(w, xy), "l": [np.arange(3), (2.5, {})], "n": 4, "t": "text"}
    tree["b"] = pr.device_put(trees.values("bfloat16", (8, 8)), xy)
    pr.save(tmp_path / "7", tree)
    code = (
        "import sys, jax, numpy as np, orbax.checkpoint as ocp\n"
        "from jax.sharding import NamedSharding, PartitionSpec\n"
        "folder = sys.argv[1]\n"
        "w = np.arange(64, dtype=np.float32).reshape(8, 8)\n"
        "def check(found):\n"
        "    assert np.array_equal(found['w'], w), found\n"
        "    assert found['b'].dtype == 'bfloat16' and found['l'][1][0] == 2.5\n"
        "    assert found['t'] == 'text' and found['n'] == 4, found\n"
        "check(ocp.v1.load(folder + '/7'))\n"
        "check(ocp.StandardCheckpointer().restore(folder + '/7/state'))\n"
        "manager = ocp.CheckpointManager(folder)\n"
        "assert manager.all_steps() == [7]\n"
        "args = ocp.args.Composite(state=ocp.args.StandardRestore())\n"
        "check(manager.restore(7, args=args)['state'])\n"
        "mesh = jax.make_mesh((2,), ('d',))\n"
        "like = {'w': jax.ShapeDtypeStruct((8, 8), 'float32',\n"
        "        sharding=NamedSharding(mesh, PartitionSpec(None, 'd')))}\n"
        "only = ocp.args.PyTreeRestore(item=like, partial_restore=True,\n"
        "    restore_args=ocp.checkpoint_utils.construct_restore_args(like))\n"
        "found = ocp.PyTreeCheckpointer().restore(folder + '/7/state', args=only)\n"
        "assert np.array_equal(found['w'], w) and len(found['w'].addressable_shards) == 2\n"
    )
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = harness.run(argv, env=harness.environment(**settings), timeout=300)
    assert done.returncode == 0, done.stderr


SMALL = {"w": np.arange(600, dtype=np.float32), "n": 3, "t": "text"}


def _equal(found: Any) -> bool:
    same = found["w"].tobytes() == SMALL["w"].tobytes() and found["w"].dtype == np.float32
    return same and found["n"] == 3 and found["t"] == "text" and set(found) == set(SMALL)


def _flips(folder: Path, data: bool, stride: int) -> Iterator[tuple[Path, int]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.parent.parent.name.startswith("ocdbt.process_") == data:
            for bit in range(0, path.stat().st_size * 8, stride):
                yield path, bit


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("of_data", "stride"),
    [(False, 61), (True, 61), pytest.param(False, 1, marks=pytest.mark.slow)],
)
def test_no_flipped_bit_gives_wrong_numbers(of_data: bool, stride: int, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    pr.save(folder, SMALL)
    refused = flips = 0
    for path, bit in _flips(folder, of_data, stride):
        data = path.read_bytes()
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        flips += 1
        try:
            assert _equal(pr.restore(folder)), f"{path.name}: bit {bit}"
        except pr.MismatchError:
            refused += 1
        path.write_bytes(data)
    assert _equal(pr.restore(folder))
    assert refused > flips / 4 > 20


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("ocdbt.process_0/d/*", r"array w, block \[0:600\]"),
        ("manifest.ocdbt", "the file manifest.ocdbt is missing"),
        ("_METADATA", "is no checkpoint"),
    ],
)
def test_what_is_missing_is_named(files: str, words: str, tmp_path: Path) -> None:
    pr.save(tmp_path / "c", SMALL)
    for file in (tmp_path / "c" / "state").glob(files):
        file.unlink()
    with pytest.raises(pr.PyReactantError, match=words):
        pr.restore(tmp_path / "c")


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (print, "['x']: a checkpoint holds arrays, numbers and text, got builtin_function"),
        (np.array([object()]), "['x']: no runtime holds arrays of Python objects"),
        (2**64, "['x']: a whole number in a checkpoint has 64 bits, got one of 65"),
        (np.array("text"), "['x']: no runtime holds dtype"),
    ],
)
def test_what_a_checkpoint_cannot_hold(leaf: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        pr.save(tmp_path / "c", {"good": 1, "x": leaf})
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (np.zeros(3), "save takes a tree of arrays, got a single one"),
        ({"a.b": 1, "a": {"b": 2}}, "have one name in a checkpoint, 'a.b'"),
        ({"l": {1: 1}, "l.1": 2}, "have one name in a checkpoint, 'l.1'"),
        ({"a": 1, "a/b": 2}, "'/' separates folders"),
        ({"": 1}, "are not empty"),
        ({"../x": 1}, "rename a key"),
        ({"x": [{"a\ud800": 1}]}, r"['x'][0]['a\ud800']: names in a checkpoint must be text that"),
        ({"a": "text", "b": None}, "must have at least one array or number, got none"),
    ],
)
def test_names_that_a_checkpoint_cannot_have(tree: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        pr.save(tmp_path / "c", tree)
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.only("jax")
def test_keys_that_cannot_be_sorted(tmp_path: Path) -> None:
    tree = {"x": [{"a": np.zeros(2), 1: np.ones(2)}]}
    words = (
        r"must have keys of one type, .* got 1 \(int\) and 'a' \(str\) at \['x'\]\[0\]; use text"
    )
    pr.save(tmp_path / "good", {"x": 1})
    for use in (lambda: pr.save(tmp_path / "c", tree), lambda: pr.restore(tmp_path / "good", tree)):
        with pytest.raises(pr.InvalidArgumentError, match=words):
            use()
    for other, place in (
        (tree["x"][0], "in the first one"),
        ({"l": trees.Layer([0, tree], None)}, r"at \['l'\].w\[1\]\['x'\]\[0\]"),
    ):
        with pytest.raises(pr.InvalidArgumentError, match=rf"got 1 .* {place}; use text"):
            pr.save(tmp_path / "c", other)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_blocks_are_read_in_parts(
    xy: pr.NamedSharding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than are read at a time, on another mesh, and one that has no chunks."""
    w = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
    monkeypatch.setattr(write, "chunk_shape", partial(format.chunk_shape, largest=256))
    pr.save(tmp_path / "c", {"w": pr.device_put(w, xy), "empty": np.zeros((0, 3))})
    monkeypatch.setattr(store, "parts", partial(format.parts, largest=600))
    monkeypatch.setattr(store, "IN_FLIGHT", 1000)
    for sharding in (None, xy, pr.NamedSharding(pr.Mesh((3,), ("d",), [6, 1, 2]), (None, "d"))):
        found = pr.restore(tmp_path / "c", shardings={"w": sharding, "empty": None})
        assert found["empty"].shape == (0, 3)
        np.testing.assert_array_equal(found["w"] if sharding is None else found["w"].gather(), w)


@pytest.mark.only("jax")
def test_on_a_cpu_what_is_read_is_not_copied(
    xy: pr.NamedSharding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pr.save(tmp_path / "c", {"w": pr.device_put(np.ones((512, 512)), xy)})
    memory = []

    def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        memory.append(dtypes.aligned(shape, dtype))
        return memory[-1]

    monkeypatch.setattr(store, "aligned", aligned)
    found = pr.restore(tmp_path / "c", shardings=xy)["w"]
    for shard in found.addressable_shards:
        assert any(np.shares_memory(shard.data, part) for part in memory)


def test_a_whole_number_is_pythons_or_an_array(xy: pr.NamedSharding, tmp_path: Path) -> None:
    pr.save(tmp_path / "c", {"n": 300, "m": np.int16(-7), "big": 2**40})
    whole = pr.NamedSharding(xy.mesh, ())
    like = {"n": pr.Aval((), np.dtype(np.int32), whole), "m": 0}
    found = pr.restore(tmp_path / "c", like=like)
    assert (found["n"].dtype, int(found["n"].gather()), found["m"]) == (np.int32, 300, -7)
    assert type(found["m"]) is int
    for name, dtype, words in (
        ("n", "uint8", "['n'] is 300, which uint8 does not hold"),
        ("big", "int32", f"['big'] is {2**40}, which int32 does not hold"),
        ("n", "float32", "['n'] is int64[], and float32[] was asked for"),
        ("m", "int32", "['m'] is int16[], and int32[] was asked for"),
    ):
        aval = pr.Aval((), np.dtype(dtype), whole)
        with pytest.raises(pr.InvalidArgumentError) as caught:
            pr.restore(tmp_path / "c", like={name: aval})
        assert words in str(caught.value)


def test_what_like_asks_for_is_there(xy: pr.NamedSharding, tmp_path: Path) -> None:
    pr.save(tmp_path / "c", {"w": np.zeros((8, 8), np.float32), "n": 3, "t": "x"})
    missing = {f"m{i:02}": 0 for i in range(30)}
    for like, words in (
        (missing, "lacks ['m00'], "),
        (missing, "['m19'] and 10 more; it has ['n'], ['t'], ['w']"),
        ({"w": np.zeros((8, 4), np.float32)}, "['w'] is float32[8, 8], and float32[8, 4] was"),
        ({"w": np.zeros((8, 8)), "n": 1.5}, "['n'] is int64[], and float64[] was asked for, ['w']"),
        ({"n": "3"}, "['n'] is an array, and str was asked for"),
        ({"t": 3}, "['t'] is text, and int was asked for"),
        ({"n": print}, "['n'] is builtin_function_or_method"),
        ({"n": signal.SIGINT}, "['n'] is Signals"),
    ):
        with pytest.raises(pr.InvalidArgumentError) as caught:
            pr.restore(tmp_path / "c", like=like)
        assert words in str(caught.value)
    with pytest.raises(pr.ShardingError, match=r"restore: \['n'\]: .*more than the 0 of the"):
        pr.restore(tmp_path / "c", like={"n": np.int64(0)}, shardings=xy)
    with pytest.raises(pr.InvalidArgumentError, match="restore: shardings must have the structure"):
        pr.restore(tmp_path / "c", shardings={"w": xy})


def test_folders_that_are_no_checkpoint(tmp_path: Path) -> None:
    pr.save(tmp_path / "steps" / "3", {"n": 3})
    for folder, words in (
        (tmp_path / "absent", "is no checkpoint (No such file or directory)"),
        (tmp_path / "steps", "but this has 3; name the folder of a step"),
    ):
        with pytest.raises(pr.FileError) as caught:
            pr.restore(folder)
        assert words in str(caught.value)
    with pytest.raises(pr.FileError, match="exists already; name a new folder"):
        pr.save(tmp_path / "steps" / "3", {"n": 3})
    (tmp_path / "file").touch()
    with pytest.raises(pr.FileError, match=r"cannot be written on .*Not a directory.* 8 bytes"):
        pr.save(tmp_path / "file" / "c", {"n": 3})


def test_a_step_that_is_deleted_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pr.save(tmp_path / "1", SMALL)
    read = store.Reader.read

    def reads(*request: Any) -> Any:
        if (tmp_path / "1").exists():
            writer_of(tmp_path).delete(tmp_path / "1")
        return read(*request)

    monkeypatch.setattr(store.Reader, "read", reads)
    with pytest.raises(pr.FileError, match=r"1/state was deleted while it was read; read a newer"):
        pr.restore(tmp_path / "1")


NO_URLS = (
    *("az://bucket/run", "gs://bucket", "s3://bucket/", "gs:/A/run", "gs://bucket/../run"),
    *("GS://bucket/x", "gs:bucket/x", "s3a:/b/x", Path("S3://bucket/x"), Path("s3a:/b/x")),
)


@pytest.mark.parametrize(
    ("folder", "kind", "words"),
    [
        (b"run1", pr.InvalidArgumentError, "must be text or a Path, got b'run1'"),
        (3, pr.InvalidArgumentError, "must be text or a Path, got 3"),
        ("a\0b", pr.FileError, r"'a\x00b' is no path"),
        ("a\\b", pr.FileError, "must have no backslash, got /"),
        *((url, pr.FileError, f"or s3://BUCKET/FOLDER, got {str(url)!r}") for url in NO_URLS),
    ],
)
def test_what_is_no_folder(
    folder: Any, kind: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL that is none must not become the name of a folder here."""
    monkeypatch.chdir(tmp_path)
    for use in (lambda at: pr.save(at, {"x": 1}), pr.restore, pr.Checkpoints):
        with pytest.raises(kind) as caught:
            use(folder)
        assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_is_no_sharding(xy: pr.NamedSharding, tmp_path: Path) -> None:
    pr.save(tmp_path / "c", {"a": 1, "w": np.zeros((8, 8))})
    for wrong in (xy.mesh, "x"):
        words = rf"\['w'\]: its sharding must be a NamedSharding, .* got {type(wrong).__name__}"
        with pytest.raises(pr.ShardingError, match=words):
            pr.restore(tmp_path / "c", shardings={"a": None, "w": wrong})


@pytest.mark.only("jax")
def test_an_array_that_was_donated(xy: pr.NamedSharding, tmp_path: Path) -> None:
    import jax

    for make in (jax.numpy.ones, lambda n: jax.random.split(jax.random.key(0), n)):
        gone = jax.device_put(make(8), pr.NamedSharding(xy.mesh, ("x",)).to_jax())
        gone.delete()
        with pytest.raises(pr.StateError, match=r"save: \['x'\]: the array was donated or deleted"):
            pr.save(tmp_path / "c", {"x": gone})
    with pytest.raises(pr.InvalidArgumentError, match="the function is traced"):
        jax.jit(lambda x: pr.save(tmp_path / "c", {"x": x}))(1.0)


def test_what_the_system_does_not_let_us_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error, and no step that is absent: a loop would go on from an older one."""
    with pytest.raises(pr.FileError, match=r"cannot be written on .*File name too long"):
        pr.save(tmp_path / ("x" * 300), {"n": 3})
    with pytest.raises(pr.FileError, match=r"cannot be read \(File name too long\)"):
        pr.restore(tmp_path / ("x" * 300))
    for step in ("5", "6"):
        pr.save(tmp_path / step, {"n": 3})
    closed, is_file, scan = tmp_path / "6" / "state", Path.is_file, os.scandir

    def deny(path: Any) -> None:
        if closed in (Path(path), *Path(path).parents):
            raise PermissionError(13, "Permission denied")

    def scans(path: Any) -> Any:
        deny(path)
        return scan(path)

    def looks(path: Path) -> bool:
        deny(path)
        return is_file(path)

    words = r"6: cannot be read \(Permission denied\); let its files be read by this user"
    monkeypatch.setattr(os, "scandir", scans)
    with pytest.raises(pr.FileError, match=words):
        list_steps(tmp_path)
    monkeypatch.setattr(Path, "is_file", looks)
    for use in (list_steps, lambda at: pr.restore(at / "6"), lambda at: list(verify(at))):
        with pytest.raises(pr.FileError, match=words):
            use(tmp_path)
    with pytest.raises(pr.FileError, match=words), pr.Checkpoints(tmp_path):
        pass


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    harness.require(os.geteuid() == 0, "to mount a file system, one must be root")
    harness.require(harness.run(mount).returncode == 0, "a file system can be mounted")
    try:
        pr.save(tmp_path / "1", {"n": 3})
        with pytest.raises(pr.FileError) as caught:
            pr.save(tmp_path / "2", {"w": np.ones(2**20)})
        said = str(caught.value)
        assert said.startswith(f"{tmp_path / '2'}: cannot be written on {os.uname().nodename} (")
        assert "No space left on device" in said
        assert "this process writes 8388608 bytes there: free some space" in said
        assert [path.name for path in tmp_path.iterdir()] == ["1"]
        assert pr.restore(tmp_path / "1") == {"n": 3}
        harness.run(["mount", "-o", "remount,ro", str(tmp_path)])
        for write in (
            lambda: pr.save(tmp_path / "3", {"n": 3}),
            pr.Checkpoints(tmp_path).__enter__,
        ):
            with pytest.raises(pr.FileError, match=r"cannot be written on .*Read-only file system"):
                write()
        assert pr.restore(tmp_path / "1") == {"n": 3}
    finally:
        harness.run(["umount", str(tmp_path)])


def test_what_was_written_cannot_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge(folder: Path, parts: Sequence[Path]) -> None:
        store.merge(folder, parts)
        for file in (folder / "d").iterdir():
            file.write_bytes(bytes(file.stat().st_size))

    monkeypatch.setattr(write, "merge", merge)
    with pytest.raises(pr.FileError, match=r"c: what was written cannot be read back on .*\(array"):
        pr.save(tmp_path / "c", SMALL)
    assert not list(tmp_path.iterdir())


def test_the_disk_has_every_file_before_the_step_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()

    def sync(path: Path) -> None:
        synced.add(path.stat().st_ino)
        files.sync(path)

    for module in (write, commit):
        monkeypatch.setattr(module, "sync", sync)
    pr.save(tmp_path / "c", {**SMALL, "more": np.arange(10**6)})
    of_tensorstore = {*(tmp_path / "c").rglob("manifest.ocdbt"), *(tmp_path / "c").rglob("d/*")}
    assert len(of_tensorstore) > 4
    assert one_context()["file_io_sync"].to_json() is True  # it syncs its files and their folders
    inside = {path for path in (tmp_path / "c").rglob("*") if not _is_database(path)}
    assert len(inside - of_tensorstore) > 5
    for path in (tmp_path, tmp_path / "c", *(inside - of_tensorstore)):
        assert path.stat().st_ino in synced, path


def _is_database(path: Path) -> bool:
    return path.name == "d" or path.name.startswith("ocdbt.process_")


def test_tensorstore_is_required(tmp_path: Path) -> None:
    (tmp_path / "tensorstore.py").write_text("raise ImportError('not here')")
    code = "import pyreactant as pr; pr.save('c', {'n': 3})"
    settings = harness.environment(PYREACTANT_PLATFORM="cpu")
    settings["PYTHONPATH"] = f"{tmp_path}:{settings['PYTHONPATH']}"
    done = harness.run([sys.executable, "-c", code], env=settings, cwd=tmp_path)
    assert "RequirementError: checkpoints need tensorstore" in done.stderr
    assert "pip install 'pyreactant[state]'" in done.stderr
    shutil.rmtree(tmp_path / "c", ignore_errors=True)
