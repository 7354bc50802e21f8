"""Preflight for absent slices: its report, and a program that also runs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.sharding import Aval
from pyreactant.arrays.text import bytes_text
from pyreactant.base.slices.topology import topology
from pyreactant.fit.preflight import alternatives
from pyreactant.fit.preflight.preflight import preflight

GIB = 2**30


def aval(shape: tuple[int, ...], spec: Any, mesh: pr.Mesh, dtype: str = "float32") -> Aval:
    return Aval(shape, np.dtype(dtype), pr.NamedSharding(mesh, spec))


@pytest.mark.usefixtures("compiler")
def test_matmul() -> None:
    report = preflight("matmul", topology="v6e-16", size=16384, dtype="bfloat16")
    assert report.fits
    assert report.mesh == pr.Mesh((4, 4), ("x", "y"))
    memory = report.bytes_per_device
    assert memory is not None
    assert memory.arguments == 2 * 4096 * 4096 * 2
    assert memory.outputs == 4096 * 4096 * 2
    assert memory.total == memory.arguments + memory.outputs + memory.temporaries + memory.code
    assert memory.temporaries > 100 * 2**20  # gathered bytes
    assert {c.axes for c in report.collectives} == {("x",), ("y",)}
    assert report.flops == pytest.approx(2 * 16384**3 / 16, rel=0.01)
    assert report.seconds is not None
    roofline = report.roofline
    assert roofline is not None
    assert roofline.compute == pytest.approx(2 * 16384**3 / 16 / 918e12, rel=0.01)
    sent = sum(c.wire_bytes for c in report.collectives)
    assert roofline.ici == pytest.approx(sent / 400e9)
    assert roofline.seconds <= report.seconds
    text = report.text()
    assert "preflight of matmul for v6e-16: 16 devices on 4 VMs; compiled, not run" in text
    assert "\nfits: " in text
    assert re.search(r" y +4 of 4 devices +1$", text, re.MULTILINE)
    assert "Estimates of one call; nothing was run:" in text
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["bytes_per_device"]["total"] == memory.total
    assert plain["hbm_bytes"] == topology("v6e-16").hbm_bytes


@pytest.mark.usefixtures("compiler")
def test_specs_without_collectives() -> None:
    report = preflight(
        "matmul",
        topology="v6e-16",
        size=16384,
        dtype="bfloat16",
        spec=("x", None),
        y_spec=(None, "y"),
    )
    assert report.collectives == ()
    assert "No collectives: the devices exchange nothing." in report.text()
    memory = report.bytes_per_device
    assert memory is not None
    assert memory.total - memory.code - memory.temporaries == (2 * 4 + 1) * 4096 * 4096 * 2
    other = preflight("matmul", topology="v6e-16", size=16384, dtype="bfloat16")
    assert report.seconds is not None
    assert other.seconds is not None
    assert report.seconds < 0.65 * other.seconds


@pytest.mark.usefixtures("compiler")
def test_several_slices() -> None:
    report = preflight(
        "matmul", topology="v6e-4", num_slices=2, size=(512, 1024, 2048), dtype="bfloat16"
    )
    assert report.topology.devices == 8
    crossing = [c for c in report.collectives if c.across_slices]
    assert {c.op for c in crossing} == {"send", "recv"}
    assert {c.axes for c in crossing} == {("x",)}  # the axis across two slices
    assert report.roofline is not None
    assert report.roofline.dcn
    assert "between slices, x, part of" in report.text()
    assert "  XLA's own estimate leaves out the network between slices" in report.text()


@pytest.mark.usefixtures("compiler")
def test_does_not_fit() -> None:
    report = preflight("matmul", topology="v6e-4", size=81920, dtype="bfloat16", spec=(None, None))
    assert not report.fits
    assert report.bytes_per_device is None
    assert report.refusal.startswith("RESOURCE_EXHAUSTED")
    assert report.refused_bytes == pytest.approx(37.5 * GIB, rel=0.01)
    text = report.text()
    assert "DOES NOT FIT; the compiler says:" in text
    assert "exceeds available HBM (31.2" in text  # its own numbers
    (advice,) = report.alternatives
    assert advice.startswith("fits with --spec ")
    assert advice.endswith(", compiled")
    assert advice in text


@pytest.mark.usefixtures("compiler")
def test_what_is_called_fitting_fits() -> None:
    """The options are those of the command, and what they ask for fits."""
    (advice,) = preflight("matmul", topology="v6e-128", size=393216, dtype="bfloat16").alternatives
    options, _, size = advice.removeprefix("fits with ").partition(": ")
    assert options == (
        "--topology v6e-256 --mesh x=8,y=4,z=8 --spec x,y --y-spec y,z --out-spec x+y,z"
    )
    asked = preflight(
        "matmul",
        topology="v6e-256",
        size=393216,
        dtype="bfloat16",
        mesh=pr.Mesh((8, 4, 8), ("x", "y", "z")),
        spec=("x", "y"),
        y_spec=("y", "z"),
        out_spec=(("x", "y"), "z"),
    )
    assert asked.bytes_per_device is not None
    assert size == f"{bytes_text(asked.bytes_per_device.total)} on each device, compiled"


@pytest.mark.usefixtures("compiler")
def test_nothing_fits_is_said_of_blocks_alone() -> None:
    (advice,) = preflight("matmul", topology="v6e-4", size=2**21, dtype="bfloat16").alternatives
    assert advice == (
        "no specs fit up to v6e-256: the blocks alone are 96 GiB on each device, however they are "
        "sharded"
    )


@pytest.mark.usefixtures("compiler")
def test_ctrl_c_keeps_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the search for alternatives is lost."""

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(alternatives, "compile_request", interrupted)
    report = preflight("matmul", topology="v6e-4", size=81920, dtype="bfloat16", spec=(None, None))
    assert report.interrupted
    assert not report.fits
    assert "interrupted before specs or a slice that fit were found" in report.text()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("dtype", "precision", "said"),
    [
        ("float32", None, "round their operands to bfloat16 (1 pass, TPU's default)"),
        ("float32", "highest", "take 6 bfloat16 passes (--precision highest); the estimates count"),
        ("bfloat16", "highest", None),
    ],
)
def test_passes_of_float32_products(dtype: str, precision: str | None, said: str | None) -> None:
    report = preflight("matmul", topology="v6e-4", size=64, dtype=dtype, precision=precision)
    notes = [note for note in report.notes if note.startswith("float32 products")]
    assert len(notes) == (said is not None)
    assert (said or "") in "".join(notes)


@pytest.mark.usefixtures("compiler")
def test_an_argument_that_is_not_used_takes_its_memory() -> None:
    """A run holds it all the same."""
    x = aval((1024, 1024), ("a", "b"), pr.Mesh((2, 2), ("a", "b")))
    memory = preflight("tests.tpu.programs:doubled", x, x, topology="v6e-4").bytes_per_device
    assert memory is not None
    assert memory.arguments == 2 * memory.outputs == 2 * 1024 * 1024


@pytest.mark.usefixtures("compiler")
def test_another_program_does_not_fit() -> None:
    mesh = pr.Mesh((2, 2), ("a", "b"))
    x = aval((1 << 17, 1 << 17), ("a", "b"), mesh)
    report = preflight("jax.numpy:add", x, x, topology="v6e-4")
    assert report.alternatives == ("v6e-8 may hold it, by size alone; not compiled",)


@pytest.mark.usefixtures("compiler")
def test_one_program_runs_and_is_preflighted(backend: str) -> None:
    program = pr.Program(
        "two_layers",
        jax="tests.tpu.programs:two_layers",
        oracle="tests.tpu.programs:two_layers_numpy",
    )
    assert pr.backend_name() == backend
    mesh = pr.Mesh((2, 4), ("data", "model"))
    rng = np.random.default_rng(0)
    hosts = [rng.standard_normal(s).astype("float32") for s in ((64, 32), (32, 128), (128, 16))]
    specs = [("data", None), (None, "model"), ("model", None)]
    arrays = [
        pr.device_put(host, pr.NamedSharding(mesh, spec))
        for host, spec in zip(hosts, specs, strict=True)
    ]
    out = pr.NamedSharding(mesh, ("data",))
    here = pr.compile(program, *arrays, out_sharding=out)(*arrays)
    from tests.tpu.programs import two_layers_numpy

    np.testing.assert_allclose(here.gather(), two_layers_numpy(*hosts), rtol=1e-4, atol=1e-3)

    there = preflight(program, *arrays, topology="v6e-8", out_sharding=out)
    assert there.fits
    assert there.program == "two_layers"
    assert there.mesh == mesh
    assert [a.shape for a in there.arguments] == [(64, 32), (32, 128), (128, 16)]
    assert [a.spec for a in there.arguments] == ["data,None", "None,model", "model,None"]
    (output,) = there.outputs
    assert (output.shape, output.dtype) == (here.shape, here.dtype.name)
    assert output.spec == "data,None"
    assert output.block == here.addressable_shards[0].data.shape
    assert [(c.op, c.axes) for c in there.collectives] == [("all-reduce", ("model",))]


@pytest.mark.usefixtures("compiler")
def test_static_values_and_outputs() -> None:
    mesh = pr.Mesh((2, 2), ("x", "y"))
    x = aval((8, 8), ("x", "y"), mesh)
    program = pr.Program("power", jax="tests.tpu.programs:power")
    powers = preflight(program, x, topology="v6e-4", static={"exponents": (2, 3)})
    assert powers.outputs[0].shape == (8, 8)
    s = pr.NamedSharding(mesh, (None, "y"))
    both = preflight("tests.tpu.programs:halves", x, topology="v6e-4", out_sharding=(s, s))
    assert [o.spec for o in both.outputs] == ["None,y"] * 2
    assert [o.block for o in both.outputs] == [(4, 4)] * 2


@pytest.mark.usefixtures("compiler")
def test_explicit_axes() -> None:
    """Its mesh is the one of a run, so that the program is traced in the same way."""
    mesh = pr.Mesh((2, 2), ("x", "y"), axis_types=("explicit", "explicit"))
    report = preflight(
        "tests.tpu.programs:turned", aval((8, 8), ("x", "y"), mesh), topology="v6e-4"
    )
    assert report.outputs[0].spec == "y,x"


@pytest.mark.usefixtures("compiler")
def test_order_of_devices() -> None:
    """On a mesh whose rows cross slices, the traffic between slices is named after their axis."""
    ids = np.arange(8).reshape(2, 4).T.ravel()  # neighbours along b are in different slices
    mesh = pr.Mesh((4, 2), ("a", "b"), ids)
    x = aval((512, 512), ("a", "b"), mesh)
    report = preflight(
        "jax.numpy:matmul", x, x, topology="v6e-4", num_slices=2, out_sharding=x.sharding
    )
    assert {c.axes for c in report.collectives if c.across_slices} == {("b",)}
    assert ("a",) in {c.axes for c in report.collectives if not c.across_slices}


@pytest.mark.usefixtures("real_compiler")
def test_a_program_that_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited program has the same name, but must not use the old cache entry."""
    monkeypatch.syspath_prepend(tmp_path)
    x = aval((64, 64), ("x", "y"), pr.Mesh((2, 2), ("x", "y")))

    def look(body: str) -> tuple[bool, float | None]:
        (tmp_path / "edited_program.py").write_text(f"def f(x):\n    return {body}\n")
        report = preflight("edited_program:f", x, topology="v6e-4")
        return report.cached, report.flops

    once, flops = look("x + x")
    again, same = look("x + x")
    edited, more = look("x * x + x * 3")
    assert (once, again, edited) == (False, True, False)
    assert flops == same
    assert flops is not None
    assert more is not None
    assert flops < more
