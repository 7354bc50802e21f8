"""`preflight --backend reactant` with a real Julia and the stand-in for Reactant.

The stand-in writes products and transposes in Reactant's form, and refuses other operations.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.sharding import Aval
from pyreactant.fit.preflight.diff import Difference
from pyreactant.fit.preflight.preflight import preflight
from tests.harness import environment, quiet

pytestmark = [
    pytest.mark.julia,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("compiler", "named_julia"),
]

MESH = pr.Mesh((4, 4), ("x", "y"))
TURNED = pr.Mesh((4, 4), ("x", "y"), np.arange(16).reshape(4, 4).T)


def square(n: int, spec: Any, mesh: pr.Mesh = MESH) -> Aval:
    return Aval((n, n), np.dtype("float32"), pr.NamedSharding(mesh, spec))


def look(program: Any, *args: Any, **options: Any) -> Difference:
    """Preflight by JAX and by Reactant."""
    jax, reactant = (
        preflight(program, *args, topology="v6e-16", backend=backend, **options)
        for backend in ("jax", "reactant")
    )
    assert (jax.source, reactant.source) == ("jax", "reactant")
    return Difference(jax, reactant)


def test_the_product_of_the_largest_matrices() -> None:
    """Preflight of 16384^2 and more allocates nothing of that size."""
    found = look("matmul", size=(16384, 8192, 32768), dtype="bfloat16")
    assert found.same_but_for_order, found.text()
    left, right = found.left, found.right
    assert [a.shape for a in right.arguments] == [(16384, 8192), (8192, 32768)]
    assert [a.in_module for a in right.arguments] == [
        "tensor<8192x16384> in the module",
        "tensor<32768x8192> in the module",
    ]
    for one, other in zip(
        (*left.arguments, *left.outputs), (*right.arguments, *right.outputs), strict=True
    ):
        assert (one.shape, one.dtype, one.spec, one.block) == (
            other.shape,
            other.dtype,
            other.spec,
            other.block,
        )
    assert left.bytes_per_device is not None
    assert right.bytes_per_device is not None
    assert left.bytes_per_device.outputs == right.bytes_per_device.outputs
    assert left.seconds == pytest.approx(right.seconds, rel=0.2)
    assert right.versions["julia"].startswith("1.")


@pytest.mark.parametrize("mesh", [TURNED, pr.Mesh((2, 8), ("a", "b"))])
def test_axes_have_the_same_names(mesh: pr.Mesh) -> None:
    first, second = mesh.axis_names
    found = look(
        "matmul",
        size=4096,
        dtype="bfloat16",
        mesh=mesh,
        spec=((first, second), None),
        y_spec=(None, None),
        out_spec=(first, second),
    )
    assert found.same_but_for_order, found.text()
    assert found.left.collectives
    assert sorted((c.op, c.axes) for c in found.left.collectives) == sorted(
        (c.op, c.axes) for c in found.right.collectives
    )


@pytest.mark.parametrize(
    ("program", "specs"),
    [
        ("gram", [("x", "y")]),
        ("matmul_transposed", [("x", "y"), ("y", None)]),
        (pr.Program("product", jax="jax.numpy:matmul", julia="*"), [("x", None), (None, "y")]),
    ],
)
def test_other_programs(program: Any, specs: list[Any]) -> None:
    out = pr.NamedSharding(MESH, ("x", "y"))
    found = look(
        program, *(square(2048, spec) for spec in specs), out_sharding=out, precision="highest"
    )
    assert found.right.fits
    assert found.right.outputs == (
        found.right.outputs[0].__class__(
            (2048, 2048), "float32", "x,y", (512, 512), "tensor<2048x2048> in the module"
        ),
    )
    assert found.left.bytes_per_device is not None
    assert found.right.bytes_per_device is not None
    assert found.left.bytes_per_device.arguments == found.right.bytes_per_device.arguments
    assert found.left.bytes_per_device.outputs == found.right.bytes_per_device.outputs


def test_one_device() -> None:
    report = preflight("matmul", topology="v6e-1", size=512, dtype="bfloat16", backend="reactant")
    assert report.fits
    assert report.collectives == ()
    assert report.arguments[0].shape == (512, 512)


def test_does_not_fit() -> None:
    report = preflight(
        "matmul",
        topology="v6e-4",
        size=81920,
        dtype="bfloat16",
        spec=(None, None),
        backend="reactant",
    )
    assert not report.fits
    assert report.source == "reactant"
    assert report.alternatives[0].startswith("fits with ")


def test_what_the_stand_in_cannot_write_is_said() -> None:
    with pytest.raises(
        pr.InvalidArgumentError,
        match="libtpu does not know: the_stand_in_for_reactant_cannot_write_this_program",
    ):
        preflight("softmax", square(64, ("x", "y")), topology="v6e-16", backend="reactant")


@pytest.mark.parametrize(
    ("program", "options", "kind", "message"),
    [
        ("NoSuchModule.f", {}, pr.InvalidArgumentError, "there is no Julia module 'NoSuchModule'"),
        ("Base.no_such_function", {}, pr.InvalidArgumentError, "no_such_function"),
        (
            pr.Program("p", julia="Base.sqrt", julia_project="/nowhere"),
            {},
            pr.InvalidArgumentError,
            "julia_project= must be the folder of a Julia project",
        ),
        (
            "Base.identity",
            {"out_sharding": pr.NamedSharding(MESH, ("x", "y", None))},
            pr.ShardingError,
            r"out_sharding does not fit output 0 of shape \(64, 64\): partition spec",
        ),
    ],
)
def test_what_julia_refuses(
    program: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        preflight(program, square(64, ("x", "y")), topology="v6e-16", backend="reactant", **options)


def test_side_by_side_on_the_command_line(compiler: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pyreactant", "preflight", "--topology", "v6e-16"]
    settings = environment(XDG_CACHE_HOME=str(compiler))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*argv, *options],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            timeout=600,
        )

    ran = run("--size", "4096", "--dtype", "bfloat16", "--diff")
    assert ran.returncode == 0, ran.stderr
    assert "matmul (jax)" in ran.stdout
    assert "matmul (reactant)" in ran.stdout
    assert "collectives are the same" in ran.stdout
    ran = run("gram", "--shape", "1024x512", "--diff", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [found[side]["source"] for side in ("left", "right")] == ["jax", "reactant"]
    assert found["right"]["arguments"][0]["shape"] == [1024, 512]
    assert found["right"]["outputs"][0]["shape"] == [512, 512]
    assert quiet(ran.stderr)
