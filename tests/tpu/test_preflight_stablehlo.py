"""Modules that JAX did not write: compiled, shown as Julia arrays, compared with a JAX program.

They have Reactant's form, written by hand from its documented output; see their first lines.
"""

import dataclasses
import re
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.base.slices.topology import topology
from pyreactant.fit.compiler import ask
from pyreactant.fit.preflight.compile import preflight_stablehlo, read_text
from pyreactant.fit.preflight.diff import Difference
from pyreactant.fit.preflight.preflight import preflight

FOLDER = Path(__file__).parent / "stablehlo"
REACTANT = (FOLDER / "reactant_matmul.mlir").read_text()
MHLO = (FOLDER / "reactant_matmul_mhlo.mlir").read_text()


@pytest.mark.usefixtures("compiler")
def test_reactants_form() -> None:
    report = preflight_stablehlo(REACTANT, topology="v6e-16")
    assert report.fits
    assert (report.program, report.source) == ("reactant_mul", "stablehlo")
    assert report.mesh == pr.Mesh((4, 4), ("x", "y"))
    x, y = report.arguments
    assert (x.shape, x.spec, x.block) == ((4096, 1024), "x,y", (1024, 256))  # the Julia array
    assert x.in_module == "tensor<1024x4096> in the module"
    assert (y.shape, y.spec) == ((1024, 2048), "x,y")
    assert report.outputs[0].shape == (4096, 2048)
    assert {c.axes for c in report.collectives} == {("x",), ("y",)}
    text = report.text()
    row = r"\n argument 0 +bfloat16 +4096 x 1024 +by x,y +1024 x 256 +tensor<1024x4096>"
    assert re.search(row, text)
    assert "\n  Julia is column-major: each tensor of Reactant's module has" in text
    assert "in reverse order" in " ".join(text.split())


@pytest.mark.usefixtures("compiler")
def test_as_it_is() -> None:
    preflight_stablehlo(REACTANT, topology="v6e-16")
    report = preflight_stablehlo(REACTANT, topology="v6e-16", column_major=False)
    assert report.cached  # the module is the same; only the printed report differs
    assert [a.shape for a in report.arguments] == [(1024, 4096), (2048, 1024)]
    assert [a.spec for a in report.arguments] == ["y,x"] * 2
    assert report.notes == ()


@pytest.mark.usefixtures("compiler")
def test_beside_jax() -> None:
    """The same product from JAX and Reactant has the same exchanges, bytes and estimate."""
    jax = preflight("matmul", topology="v6e-16", size=(4096, 1024, 2048), dtype="bfloat16")
    found = Difference(jax, preflight_stablehlo(REACTANT, topology="v6e-16"))
    assert found.same_collectives
    assert found.left.bytes_per_device is not None
    assert found.right.bytes_per_device is not None
    assert found.left.bytes_per_device.arguments == found.right.bytes_per_device.arguments
    assert found.left.seconds == pytest.approx(found.right.seconds, rel=0.01)
    text = found.text()
    assert "matmul (jax)" in text
    assert "reactant_mul (stablehlo)" in text
    assert "collectives are the same; all times are estimates" in text
    assert found.to_dict()["same_collectives"] is True


@pytest.mark.usefixtures("compiler")
def test_the_same_in_another_order() -> None:
    report = preflight_stablehlo(REACTANT, topology="v6e-16")
    first, second = report.collectives
    assert first != second
    turned = Difference(report, dataclasses.replace(report, collectives=(second, first)))
    assert not turned.same_collectives
    assert turned.same_but_for_order
    assert "collectives are the same in another order; all times are" in turned.text()
    fewer = Difference(report, dataclasses.replace(report, collectives=(first,)))
    assert not fewer.same_but_for_order


@pytest.mark.usefixtures("compiler")
def test_beside_another_layout() -> None:
    jax = preflight(
        "matmul",
        topology="v6e-16",
        size=(4096, 1024, 2048),
        dtype="bfloat16",
        spec=("x", None),
        y_spec=(None, "y"),
    )
    found = Difference(jax, preflight_stablehlo(REACTANT, topology="v6e-16"))
    assert not found.same_collectives
    assert found.text().count("only right") == 2
    assert "collectives are DIFFERENT" in found.text()


@pytest.mark.usefixtures("compiler")
def test_mhlo_shardings() -> None:
    report = preflight_stablehlo(MHLO, topology="v6e-16", mesh=pr.Mesh((4, 4), ("x", "y")))
    assert report.arguments[0].sharding == "into 4x4 blocks"
    assert report.to_dict()["arguments"][0]["spec"] == "into 4x4 blocks"
    assert report.arguments[0].block == (1024, 256)
    shardy = preflight_stablehlo(REACTANT, topology="v6e-16")
    assert Difference(report, shardy).same_collectives
    assert {c.axes for c in report.collectives} == {("x",), ("y",)}
    without = preflight_stablehlo(MHLO, topology="v6e-16")
    assert {c.axes for c in without.collectives} == {()}
    assert "Arrays of a module without a mesh:" in without.text()


@pytest.mark.usefixtures("no_libtpu")
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("partitions = 16", "partitions = 8", "is partitioned for 8 devices, but v6e-16 has 16"),
        ('"y"=4', '"y"=2', r"has num_partitions = 16, but its mesh 4x2 has 8 devices"),
        ("1024x4096", "?x4096", r"line 6 of the module has the dynamic shape tensor<\?x4096xbf16>"),
        ('"x"', '"a b"', 'the module\'s sdy.mesh <."a b"=4, "y"=4.>: axis names must be identif'),
        ("@main", "@other", "with a function @main; this one begins with"),
    ],
)
def test_refused_before_libtpu_is_loaded(before: str, after: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        preflight_stablehlo(REACTANT.replace(before, after), topology="v6e-16", cache=False)


@pytest.mark.usefixtures("no_libtpu")
def test_without_libtpu() -> None:
    """Without libtpu, loading it raises this error, which the previous tests do not get."""
    with pytest.raises(pr.RequirementError, match="libtpu was loaded"):
        preflight_stablehlo(REACTANT, topology="v6e-16", cache=False)


@pytest.mark.usefixtures("compiler")
def test_another_mesh_for_a_module_in_the_cache() -> None:
    """The mesh is checked with the module, and again with a cached answer."""
    preflight_stablehlo(MHLO, topology="v6e-16")
    with pytest.raises(pr.ShardingError, match=r"its mesh 4x2 has 8 devices"):
        preflight_stablehlo(MHLO, topology="v6e-16", mesh=pr.Mesh((4, 2), ("x", "y")))


@pytest.mark.usefixtures("no_libtpu")
def test_no_word_of_devices() -> None:
    text = MHLO.replace("mhlo.num_partitions = 16 : i64, ", "")
    with pytest.raises(pr.InvalidArgumentError, match=r"must have mhlo.num_partitions or an s"):
        preflight_stablehlo(text, topology="v6e-16")


@pytest.mark.usefixtures("compiler")
def test_an_unknown_custom_call() -> None:
    text = REACTANT.replace("transpose %arg0, dims = [1, 0]", "custom_call @other(%arg0)")
    with pytest.raises(pr.InvalidArgumentError, match="does not know: other; kernels for CPUs"):
        preflight_stablehlo(text, topology="v6e-16")


@pytest.mark.usefixtures("compiler")
def test_does_not_parse() -> None:
    text = REACTANT.replace("stablehlo.dot_general", "stablehlo.dot_generaal")
    with pytest.raises(
        pr.InvalidArgumentError,
        match=r"module does not parse: (.|\n)*'stablehlo.dot_generaal' is unknown",
    ):
        preflight_stablehlo(text, topology="v6e-16")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(pr.FileError, match=r"absent.mlir: the module cannot be read \(No such"):
        read_text(tmp_path / "absent.mlir")


@pytest.mark.parametrize(
    ("step", "kind"),
    [("compile", "AttributeError"), ("parse", "ImportError"), ("parse", "ModuleNotFoundError")],
)
def test_a_jax_without_the_private_interface(
    monkeypatch: pytest.MonkeyPatch, step: str, kind: str
) -> None:
    said = {
        "failed": step,
        "type": kind,
        "message": "no attribute 'DeviceList'",
        "own_error": False,
        "dynamic": False,
        "where": "",
        "seconds": 1.0,
        "compiler_bytes": 1,
    }
    monkeypatch.setattr(ask, "compile_in_child", lambda *arguments: said)
    question = {"kind": "stablehlo", "text": "", "topology": {}}
    with pytest.raises(
        pr.RequirementError, match=r"lacks the private interface .* 0.12.0.1 have it"
    ):
        ask.ask(question, topology("v6e-4"), {}, cache=False, timeout=1)
