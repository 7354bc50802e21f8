"""Programs that are StableHLO files, of JAX's form and of Reactant's: the JAX runtime alone."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays import stablehlo
from pyreactant.arrays.program import with_names
from pyreactant.check.programs import find_case
from tests.backend.common import MESH
from tests.harness import REPOSITORY

pytestmark = [pytest.mark.only("jax"), pytest.mark.usefixtures("backend")]

DATA = REPOSITORY / "tests" / "data"
SHARDY = (DATA / "matmul_shardy.mlir").read_text()
MHLO = (DATA / "matmul_mhlo.mlir").read_text()
LAYER = (DATA / "tanh_layer.mlir").read_text()
X = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
Y = np.linspace(2, -1, 64, dtype=np.float32).reshape(16, 4)


def of(name: str, **options: Any) -> pr.Program:
    return pr.Program("it", stablehlo=str(DATA / name), **options)


def put(array: np.ndarray, *spec: Any, mesh: pr.Mesh = MESH) -> pr.ShardedArray:
    placed: pr.ShardedArray = pr.device_put(array, pr.NamedSharding(mesh, spec))
    return placed


@pytest.fixture(scope="module")
def layer() -> tuple[pr.ShardedArray, ...]:
    ones = np.full((8, 8), 0.1, np.float32)
    return put(ones, "x", "y"), put(ones, None, "y"), put(ones[0], "y")


def test_shardings_of_shardy() -> None:
    """Arguments that lie otherwise are moved; the result lies as the module says."""
    x, y = put(X), put(Y, "y")
    product = pr.compile(of("matmul_shardy.mlir"), x, y)
    found = product(x, y)
    assert found.sharding == pr.NamedSharding(MESH, ("x", "y"))
    np.testing.assert_allclose(found.gather(), X @ Y, rtol=1e-5)
    text = product.as_text()
    assert '@mesh, [{"a"}, {"b"}]' in text
    assert '"a"=2, "b"=4' in text
    rows = pr.NamedSharding(MESH, ("x",))
    again = pr.compile(of("matmul_shardy.mlir"), x, y, out_sharding=rows, donate=1)(x, y)
    assert again.sharding == rows
    np.testing.assert_allclose(again.gather(), X @ Y, rtol=1e-5)


def test_shardings_of_xla_and_sizes_of_julia() -> None:
    x, y = put(X.T.copy(), None, "x"), put(Y.T.copy(), "y")
    found = pr.compile(of("matmul_mhlo.mlir"), x, y)(x, y)
    assert found.shape == (4, 8)
    assert found.sharding == pr.NamedSharding(MESH, ("y", "x"))
    np.testing.assert_allclose(found.gather().T, X @ Y, rtol=1e-5)


def test_trees_are_flat_and_a_call_sees_another_file(
    tmp_path: Path, layer: tuple[pr.ShardedArray, ...]
) -> None:
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER)
    program = pr.Program("odd name: a(b)", stablehlo=str(file))
    x, w, b = layer
    assert program({"a": x, "b": [w, b]}).gather()[0, 0] == pytest.approx(np.tanh(0.18))
    file.write_text(LAYER.replace("stablehlo.tanh %2", "stablehlo.negate  %2"))
    assert program(x, w, b).gather()[0, 0] == pytest.approx(-0.18)


def test_another_file_of_the_same_size_and_time(
    tmp_path: Path, layer: tuple[pr.ShardedArray, ...]
) -> None:
    file = tmp_path / "layer.mlir"
    program = pr.Program("layer", stablehlo=str(file))
    for operation, value in (("tanh", np.tanh(0.18)), ("sqrt", np.sqrt(0.18))):
        file.write_text(LAYER.replace("stablehlo.tanh %2", f"stablehlo.{operation} %2"))
        os.utime(file, ns=(10**18, 10**18))
        assert program(*layer).gather()[0, 0] == pytest.approx(value)


def test_loops_and_64_bits() -> None:
    values, steps = of("while_loop.mlir")(put(np.zeros(8), "x"))
    assert values.gather().tolist() == [1.9375] * 8
    assert values.dtype == np.float64
    assert (int(steps), steps.dtype) == (5, np.int64)


def test_precision_is_for_products_that_have_none(
    tmp_path: Path, layer: tuple[pr.ShardedArray, ...]
) -> None:
    file = tmp_path / "layer.mlir"
    file.write_text(LAYER.replace(", precision = [HIGHEST, HIGHEST]", ""))
    assert "HIGH" not in pr.compile(pr.Program("p", stablehlo=str(file)), *layer).as_text()
    high = pr.compile(pr.Program("p", stablehlo=str(file)), *layer, precision="high").as_text()
    assert "[HIGH, HIGH]" in high
    kept = pr.compile(of("tanh_layer.mlir"), *layer, precision="high").as_text()
    assert "[HIGHEST, HIGHEST]" in kept


def test_a_module_of_jax(tmp_path: Path, layer: tuple[pr.ShardedArray, ...]) -> None:
    """What jax.jit lowers for shardings comes back as a program with the same bits."""

    def step(x: Any, w: Any, b: Any) -> Any:
        return {"y": (x @ w + b).sum(axis=1), "x": x}

    lowered = pr.compile(step, *layer)
    file = tmp_path / "step.mlir"
    file.write_text(lowered.as_text())
    found = pr.compile(pr.Program("step", stablehlo=str(file)), *layer)(*layer)
    for ours, theirs in zip(found, [lowered(*layer)[k] for k in ("x", "y")], strict=True):
        assert ours.gather().tobytes() == theirs.gather().tobytes()


TANH = "stablehlo.tanh %2 : tensor<8x8xf32>"
CALLBACK = (
    "stablehlo.custom_call @xla_ffi_python_cpu_callback(%2) : (tensor<8x8xf32>) -> tensor<8x8xf32>"
)
FOREIGN = '"enzymexla.tanh"(%2) : (tensor<8x8xf32>) -> tensor<8x8xf32>'
DECLARED = "module { func.func private @main(%a: tensor<8xf32>) -> tensor<8xf32> }"
IDENTITY = "module { func.func @main(%a: tensor<T>) -> tensor<T> { return %a : tensor<T> } }"
SECOND = "  func.func @other(%arg0: tensor<f32>) -> tensor<f32> { return %arg0 : tensor<f32> }\n}"
KINDS = (
    "empty bytecode main parse callback several dynamic replicas int4 foreign mesh xla declared "
    "recursive nested partition manual"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "with a function @main; this one begins with ''"),
        ("ML\ufffdR", "this one begins with MLIR bytecode"),
        (
            SHARDY.replace("@main", "@step"),
            r"with a function @main; this one begins with '// z = x",
        ),
        (LAYER.replace("stablehlo.tanh", "stablehlo.tan_h"), "does not parse: .*stablehlo.tan_h"),
        (LAYER.replace(TANH, CALLBACK), "custom calls.*: xla_ffi_python_cpu_callback; write"),
        (LAYER[:-2] + SECOND, "has several functions: main and other; a program is one function"),
        (
            IDENTITY.replace("T", "?x8xf32"),
            r"line 1 of the module has the dynamic shape tensor<\?x8",
        ),
        (LAYER.replace("num_replicas = 1", "num_replicas = 2"), "is written for 2 replicas"),
        (IDENTITY.replace("T", "8xi4"), "unknown dtype 'int4'|no runtime holds dtype int4"),
        (LAYER.replace(TANH, FOREIGN), "uses operations that are not StableHLO: enzymexla.tanh; "),
        (SHARDY.replace('"b"=4', '"b"=2'), "num_partitions = 8, but its mesh .* has 4 devices"),
        (MHLO.replace("num_partitions = 8", "num_partitions = 4"), "= 4, but its mesh of sizes"),
        (DECLARED, "declares main without a body"),
        (
            IDENTITY.replace(
                "return %a", "%0 = call @main(%a) : (tensor<T>) -> tensor<T> return %0"
            ).replace("T", "8xf32"),
            "has functions that call themselves: main; write it as a loop",
        ),
        (
            "module { module @a {} " + IDENTITY.replace("T", "8xf32")[9:],
            "has builtin.module beside",
        ),
        (
            LAYER.replace(TANH, "stablehlo.partition_id : tensor<ui32>")
            .replace("return %3 : tensor<8x8xf32>", "return %3 : tensor<ui32>")
            .replace("-> (tensor<8x8xf32> {", "-> (tensor<ui32> {"),
            "XLA cannot compile the StableHLO file",
        ),
        (MHLO.replace("{devices=[2,4]<=[8]}", "{manual}"), "has the sharding {manual} for a tenso"),
    ],
    ids=KINDS.split(),
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.mlir"
    file.write_text(text)
    ones = np.ones((8, 8), np.float32)
    args = put(ones), put(ones), put(ones[0])
    with pytest.raises(pr.PyReactantError, match=rf"(?s)Program 'it': .*({message})"):
        pr.compile(pr.Program("it", stablehlo=str(file)), *args)


def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(X)

    def refused(path: Path, message: str) -> None:
        with pytest.raises(pr.FileError, match=message):
            pr.compile(pr.Program("it", stablehlo=str(path)), x)

    refused(tmp_path / "absent.mlir", r"absent.mlir' cannot be read \(No such file")
    refused(tmp_path, "is not a file; give the path of a module as text")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is not a file")
    refused(tmp_path / "a\0b", "cannot be read .*null")
    huge = tmp_path / "huge.mlir"
    huge.touch()
    os.truncate(huge, stablehlo.LIMIT + 2**20)
    refused(huge, "has 257 MiB, but may have 256; turn its large constants into arguments")


def test_wrong_arguments(layer: tuple[pr.ShardedArray, ...]) -> None:
    x, w, _ = layer
    with pytest.raises(
        pr.InvalidArgumentError, match=r"takes the arguments \(float32\[8, 8\], f.*"
    ):
        pr.compile(of("tanh_layer.mlir"), x, w)
    with pytest.raises(pr.InvalidArgumentError, match=r"float32\[8\]\), got .*float32\[8, 8\]\); "):
        pr.compile(of("tanh_layer.mlir"), x, w, w)
    with pytest.raises(pr.InvalidArgumentError, match=r"got \(float64\[8, 8\]"):
        pr.compile(of("tanh_layer.mlir"), put(np.ones((8, 8))), w, w)
    with pytest.raises(pr.InvalidArgumentError, match=r"takes no static values, .*; got factor; "):
        of("tanh_layer.mlir")(x, w, w, factor=2)
    few = pr.Mesh((2, 2), ("x", "y"), [0, 1, 2, 3])
    with pytest.raises(pr.ShardingError, match=r"is partitioned for 8 devices, but .* lie on 4; "):
        pr.compile(of("matmul_shardy.mlir"), put(X, mesh=few), put(Y, mesh=few))


def test_the_program_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("", 3, Path("x.mlir")):
        with pytest.raises(pr.InvalidArgumentError, match=r"stablehlo= must be the path of a file"):
            pr.Program("it", stablehlo=path)
    with pytest.raises(pr.InvalidArgumentError, match="jax= and stablehlo= are both bodies for"):
        of("tanh_layer.mlir", jax="jax.numpy:tanh")
    monkeypatch.chdir(DATA)
    relative = pr.Program("it", stablehlo="tanh_layer.mlir")
    assert with_names(relative).stablehlo == str(DATA / "tanh_layer.mlir")  # other folders find it


def test_the_case_of_a_file() -> None:
    case = find_case(of("matmul_mhlo.mlir", oracle=lambda x, y: y @ x))
    assert [one.shape for one in case.inputs(1, "float32")] == [(16, 8), (4, 16)]
    assert case.dtypes == ("float32",)
    assert "matmul_mhlo.mlir (blake2b " in case.summary
    assert find_case(of("while_loop.mlir")).dtypes == ("float64",)
    with pytest.raises(pr.InvalidArgumentError, match=r"shapes \(\(8,\),\), got inputs=\(\('n',\)"):
        find_case(of("while_loop.mlir", inputs=(("n",),)))
