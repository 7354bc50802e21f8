"""Julia bodies inside JAX, from modules in Reactant's form: no Julia here, and JAX alone."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import pyreactant as pr
from pyreactant.arrays.dtypes import NAMES, as_dtype
from tests.harness import REPOSITORY, need_enzyme

pytestmark = [pytest.mark.only("jax"), pytest.mark.usefixtures("backend")]

DATA = REPOSITORY / "tests" / "data"
PERCEPTRON = str(DATA / "reactant_perceptron.mlir")
PROGRAM = pr.Program("perceptron", julia="PyReactant.Programs.perceptron")
SHAPES = ((16, 16), (16, 16), (16,), (16, 16), (16,))
MLIR = {
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"ui{n}" for n in (8, 16, 32, 64)},
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    "bool": "i1",
    "bfloat16": "bf16",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}
TURNED = """module @reactant_permutedims {
  func.func @main(%a: tensor<3x2xT>) -> tensor<2x3xT> {
    %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<3x2xT>) -> tensor<2x3xT>
    return %0 : tensor<2x3xT>
  }
}
"""


def inputs() -> list[Any]:
    numbers = np.random.default_rng(0)
    return [jnp.asarray(numbers.normal(size=s) * 0.3, jnp.float32) for s in SHAPES]


def body(x: Any, w: Any, c: Any, v: Any, d: Any) -> Any:
    return jnp.tanh(x @ w + c) @ v + d


def close(found: Any, wanted: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)


def mlir(dtype: str) -> str:
    return MLIR.get(dtype) or "f8" + dtype.removeprefix("float8_").upper()


def turned(folder: Path, dtype: str = "float32", text: str = TURNED, **options: Any) -> Any:
    file = folder / "turned.mlir"
    file.write_text(text.replace("T>", f"{mlir(dtype)}>"))
    program = pr.Program("turned", julia="Base.permutedims")
    aval = jax.ShapeDtypeStruct((2, 3), as_dtype(dtype))
    return pr.as_jax(program, aval, stablehlo=str(file), **options)


def test_a_product_of_other_sizes() -> None:
    x, y = jnp.arange(48.0).reshape(8, 6), jnp.arange(24.0).reshape(6, 4)
    program, file = pr.Program("matmul", julia="*"), str(DATA / "reactant_matmul.mlir")
    close(pr.as_jax(program, x, y, stablehlo=file)(x, y), x @ y)


def test_values_sharded_by_their_caller() -> None:
    f, args = pr.as_jax(PROGRAM, *inputs(), stablehlo=PERCEPTRON), inputs()
    close(f(*args), body(*args))  # outside of jit too
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    cut = [jax.NamedSharding(mesh, P("a", "b") if x.ndim == 2 else P("b")) for x in args]
    placed = jax.device_put(args, cut)
    found = jax.jit(lambda *xs: 2 * f(*xs), out_shardings=cut[0])(*placed)
    close(found, 2 * body(*args))
    rows = jax.shard_map(
        lambda x, w: f(x, w, *args[2:]), mesh=mesh, in_specs=(P(("a", "b")), P()), out_specs=P("a")
    )
    with pytest.raises(ValueError, match="out_specs"):  # it still varies over b
        rows(jnp.tile(args[0], (8, 1)), args[1])
    looped = jax.lax.map(lambda x: f(x, *args[1:]), jnp.stack([args[0], 2 * args[0]]))
    close(looped[1], body(2 * args[0], *args[1:]))


def test_every_dtype(tmp_path: Path) -> None:
    for name in NAMES:
        with jax.enable_x64(True):
            x = jnp.asarray(np.arange(6).reshape(2, 3) % 2, as_dtype(name))
            found = turned(tmp_path, name)(x)
        assert found.dtype == as_dtype(name)
        assert np.array_equal(np.asarray(found), np.asarray(x).T)
    with pytest.raises(pr.DTypeError, match=r"has 64-bit types: .*jax.enable_x64\(True\)"):
        turned(tmp_path, "float64")(jnp.ones((2, 3)))


class Pair(NamedTuple):
    first: Any
    second: Any


def test_trees_and_records(tmp_path: Path) -> None:
    """A file that as_text() wrote keeps the structure of the results, in Julia's order."""
    text = TURNED.replace("-> tensor<2x3xT> {", "-> (tensor<2x3xT>, tensor<3x2xT>) {")
    text = text.replace("return %0 : tensor<2x3xT>", "return %0, %a : tensor<2x3xT>, tensor<3x2xT>")
    header = (
        '// pyreactant: {"program": "p", "julia": "M.f", "static": {"n": [1, 2]}, '
        '"results": ["named", ["z", "a"], 0, ["list", 1, null]], "versions": {"Reactant": "0"}}\n'
    )
    file = tmp_path / "named.mlir"
    file.write_text(header + text.replace("T>", "f32>"))
    program, x = pr.Program("p", julia="M.f"), jnp.arange(6.0).reshape(2, 3)
    options: Any = {"static": {"n": (1, 2)}, "stablehlo": str(file)}
    f = pr.as_jax(program, {"x": Pair(x, None)}, **options)
    found = f({"x": Pair(x, None)})
    assert set(found) == {"a", "z"}
    assert np.array_equal(found["z"], x.T)
    assert np.array_equal(found["a"][0], x)
    assert found["a"][1] is None
    file.write_text(f.as_text())
    again = pr.as_jax(program, {"x": Pair(x, None)}, **options)
    assert again.as_text() == f.as_text()
    with pytest.raises(pr.InvalidArgumentError, match=r"of the structure .*, got "):
        f(x)
    with pytest.raises(pr.InvalidArgumentError, match=r"is M.f with static values {'n': \(1, 2\)}"):
        pr.as_jax(program, x, static={"n": 1}, stablehlo=str(file))
    file.write_text("// pyreactant: {}\n")
    with pytest.raises(pr.InvalidArgumentError, match=r"first line .* is damaged"):
        pr.as_jax(program, x, stablehlo=str(file))


def test_without_gradients() -> None:
    f, args = pr.as_jax(PROGRAM, *inputs(), stablehlo=PERCEPTRON), inputs()
    with pytest.raises(
        pr.InvalidArgumentError, match=r"make it with as_jax\(\.\.\., differentiable"
    ):
        jax.grad(lambda *xs: f(*xs).sum())(*args)
    assert not jax.grad(lambda x: f(*jax.lax.stop_gradient([x, *args[1:]])).sum())(args[0]).any()
    with pytest.raises(pr.InvalidArgumentError, match=r"jax.vmap cannot map it.*use jax.lax.map"):
        jax.vmap(f, (0, None, None, None, None))(jnp.stack([args[0]] * 2), *args[1:])


def test_wrong_calls() -> None:
    f, args = pr.as_jax(PROGRAM, *inputs(), stablehlo=PERCEPTRON), inputs()
    for wrong, message in (
        ([args[0]] * 5, r"was lowered for \(float32\[16, 16\].*got .*; give such arrays, or call"),
        ([args[0].astype(jnp.bfloat16), *args[1:]], r"got \(bfloat16\[16, 16\]"),
        (args[:4], "for arguments of the structure"),
        (["x", *args[1:]], "takes arrays, got str as argument 0"),
    ):
        with pytest.raises(pr.InvalidArgumentError, match=message):
            f(*wrong)
    placed = pr.device_put(np.ones((16, 16), np.float32), pr.NamedSharding(pr.Mesh((8,), "i"), ()))
    with pytest.raises(
        pr.InvalidArgumentError, match=r"got a pyreactant.ShardedArray .*to_jax\(\)"
    ):
        f(placed, *args[1:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "must be StableHLO as text"),
        (TURNED.replace("stablehlo.transpose", "stablehlo.turn"), "does not parse"),
        (
            TURNED.replace("3x2", "4x2").replace("2x3", "2x4"),
            r"takes .*float32\[2, 4\].* was called",
        ),
        (TURNED[:-2] + "func.func @b() { return }\n}", "has several functions: main and b"),
        (
            TURNED.replace("stablehlo.transpose %a, dims = [1, 0]", "stablehlo.custom_call @f(%a)"),
            "has custom calls",
        ),
        (
            TURNED.replace("{\n  func", '{\n  sdy.mesh @m = <["x"=2]>\n  func', 1),
            "has shardings, but the function is sharded by its caller",
        ),
    ],
    ids=["text", "parse", "shapes", "several", "custom", "sharded"],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=rf"(?s)'turned'.*{message}"):
        turned(tmp_path, text=text)


def test_what_cannot_be_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = jnp.ones((2, 3))
    for program in (pr.Program("p", jax="jax.numpy:tanh"), body):
        with pytest.raises(
            pr.InvalidArgumentError, match=r"takes a Program with a Julia body, got"
        ):
            pr.as_jax(program, x)
    program = pr.Program("p", julia="M.f")
    for value in (x, [1], 1j, np.float32(1)):
        with pytest.raises(pr.InvalidArgumentError, match=r"static value 'n' cannot be lowered"):
            pr.as_jax(program, x, static={"n": value})
    with pytest.raises(pr.InvalidArgumentError, match=r"argument 0 must be an array or a descript"):
        pr.as_jax(program, 1.5)
    with pytest.raises(pr.InvalidArgumentError, match=r"unknown precision 'best'"):
        pr.as_jax(program, x, precision="best")
    with pytest.raises(pr.FileError, match=r"absent.mlir' cannot be read"):
        pr.as_jax(program, x, stablehlo=str(tmp_path / "absent.mlir"))
    monkeypatch.setenv("PYTHON_JULIACALL_EXE", str(tmp_path / "julia"))
    monkeypatch.setenv("PYTHON_JULIACALL_PROJECT", str(tmp_path))
    with pytest.raises(
        pr.RequirementError, match=r"is lowered in Julia.*stablehlo='file.mlir' here"
    ):
        pr.as_jax(program, x)


def test_without_enzyme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        pr.RequirementError, match=r"enzyme-ad, which is not installed: .*\[enzyme\]"
    ):
        pr.as_jax(PROGRAM, *inputs(), differentiable=True, stablehlo=PERCEPTRON)


def test_gradients_by_enzyme() -> None:
    need_enzyme()
    g, args = pr.as_jax(PROGRAM, *inputs(), differentiable=True, stablehlo=PERCEPTRON), inputs()
    every = tuple(range(5))

    def loss(f: Any) -> Any:
        return lambda *xs: (f(*xs) ** 2).sum()

    wanted = jax.grad(loss(body), every)(*args)
    close(jax.grad(loss(g), every)(*args), wanted)
    close(jax.jit(jax.grad(jax.checkpoint(loss(g)), 1))(*args), wanted[1])
    close(jax.jvp(g, args, args), jax.jvp(body, args, args))
    close(jax.vjp(g, *args)[1](args[0]), jax.vjp(body, *args)[1](args[0]))

    def first(f: Any) -> Any:
        return lambda w: f(args[0], w, *args[2:])

    def steps(f: Any) -> Any:
        return lambda w: jax.lax.fori_loop(0, 3, lambda _, x: f(x, w, *args[2:]), args[0])

    close(*(jax.linearize(first(f), args[1])[1](args[1]) for f in (g, body)))
    close(*(jax.jvp(steps(f), args[1:2], args[1:2]) for f in (g, body)))

    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    cut = [jax.NamedSharding(mesh, P("a", "b") if x.ndim == 2 else P("b")) for x in args]
    close(jax.jit(jax.grad(loss(g), every))(*jax.device_put(args, cut)), wanted)
    batch = jnp.tile(args[0], (8, 1))
    whole = P(("a", "b"))

    def parts(x: Any, w: Any) -> Any:
        rows = jax.shard_map(
            lambda x, w: g(x, w, *args[2:]), mesh=mesh, in_specs=(whole, P()), out_specs=whole
        )
        return (rows(x, w) ** 2).sum()

    plain = jax.grad(lambda x, w: (body(x, w, *args[2:]) ** 2).sum(), (0, 1))(batch, args[1])
    close(jax.jit(jax.grad(parts, (0, 1)))(batch, args[1]), plain)

    for twice in (
        lambda x: jax.grad(lambda y: jax.grad(loss(g))(y, *args[1:]).sum())(x),
        lambda x: jax.grad(lambda y: jax.jvp(first(g), (y,), (y,))[1].sum())(x),
    ):
        with pytest.raises(pr.InvalidArgumentError, match="has first derivatives only"):
            twice(args[1])
    for jacobian in (jax.jacrev, jax.jacfwd, jax.hessian):
        with pytest.raises(pr.InvalidArgumentError, match=r"neither can jax\.jacrev, jax\.jacfwd"):
            jacobian(g)(*args)


SEVERAL = """module @reactant_three attributes {mhlo.num_partitions = 1 : i64} {
  func.func @main(%a: tensor<4xf64> {enzymexla.memory_effects = []}, %b: tensor<4xbf16>)
      -> (tensor<4xf64>, tensor<4xbf16>, tensor<f64>) {
    %0 = stablehlo.multiply %a, %a : tensor<4xf64>
    %1 = stablehlo.multiply %b, %b : tensor<4xbf16>
    %2 = stablehlo.constant dense<1.0> : tensor<f64>
    return %0, %1, %2 : tensor<4xf64>, tensor<4xbf16>, tensor<f64>
  }
}
"""


def test_more_results_than_arguments_and_several_types(tmp_path: Path) -> None:
    need_enzyme()
    file = tmp_path / "three.mlir"
    file.write_text(SEVERAL)
    with jax.enable_x64(True):
        x, y = jnp.arange(4, dtype=jnp.float64), jnp.arange(4, dtype=jnp.bfloat16)
        program = pr.Program("p", julia="M.f")
        f = pr.as_jax(program, x, y, stablehlo=str(file), differentiable=True)
        found = jax.grad(lambda x, y: sum(out.sum().astype(x.dtype) for out in f(x, y)), (0, 1))(
            x, y
        )
    assert [one.dtype.name for one in found] == ["float64", "bfloat16"]
    for one in found:
        assert np.array_equal(np.asarray(one, np.float64), 2.0 * np.arange(4))


def test_what_enzyme_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_enzyme()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in ("float16", "complex64", "int32"):
        with pytest.raises(
            pr.DTypeError, match=rf"takes float32, float64, bfloat16, but .* {name};"
        ):
            turned(tmp_path, name, differentiable=True)
    short = "(tensor<3x2xf32>) -> tensor<3x2xf16>"
    text = TURNED.replace("T>", "f32>").replace(
        "%0 =", f"%h = stablehlo.convert %a : {short}\n    %0 ="
    )
    with pytest.raises(pr.DTypeError, match=r"but it computes with float16; convert it, or leave"):
        turned(tmp_path, text=text, differentiable=True)
    vector = jax.ShapeDtypeStruct((8,), np.float32)
    file = tmp_path / "vector.mlir"
    options: Any = {"stablehlo": str(file), "differentiable": True}
    file.write_text(jax.jit(jnp.sort).lower(vector).as_text())
    with pytest.raises(pr.InvalidArgumentError, match=r"Enzyme (ended its process|cannot diff)"):
        pr.as_jax(pr.Program("sort", julia="Base.sort"), vector, **options)
    file.write_text(jax.jit(jnp.cumsum).lower(vector).as_text())
    sums = pr.as_jax(pr.Program("sums", julia="Base.cumsum"), vector, **options)
    ones = jnp.ones(8)
    assert jax.grad(lambda x: sums(x).sum())(ones).tolist() == [*range(8, 0, -1)]
    with pytest.raises(pr.InvalidArgumentError, match=r"no forward derivative of it: .*adjoint"):
        jax.jvp(sums, (ones,), (ones,))
    assert not list((tmp_path / "tmp").iterdir())  # nothing of Enzyme's stays


@pytest.mark.julia
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("named_julia")
def test_julia_in_a_child() -> None:
    x, y = jnp.arange(48.0).reshape(8, 6), jnp.arange(24.0).reshape(6, 4)
    product = pr.as_jax(pr.Program("product", julia="*"), x, y)
    close(jax.jit(product)(x, y), x @ y)
    assert "julia" in product.as_text().splitlines()[0]
    assert "juliacall" not in sys.modules
