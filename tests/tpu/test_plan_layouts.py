"""Which layouts are considered, which are discarded, and which are compiled."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant.arrays.matmul import default_mesh
from pyreactant.base.slices.topology import topology
from pyreactant.fit.layouts.layouts import (
    factorisations,
    layout_of,
    product_layouts,
    program_layouts,
    promising,
)
from pyreactant.fit.layouts.machine import Machine, local_machine, slice_machine
from pyreactant.fit.layouts.model import Product


def machine(name: str, num_slices: int = 1, dtype: str = "bfloat16") -> Machine:
    return slice_machine(topology(name, num_slices), dtype)


@given(st.integers(1, 512), st.integers(1, 3))
def test_factorisations(number: int, parts: int) -> None:
    found = list(factorisations(number, parts))
    assert len(set(found)) == len(found)
    for factors in found:
        assert math.prod(factors) == number
        assert list(factors) == sorted(factors)
        assert len(factors) <= parts
        assert number == 1 or min(factors) > 1
    if parts == 2:
        assert len(found) == sum(number % d == 0 for d in range(1, math.isqrt(number) + 1))


values = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, math.inf])


@given(st.lists(st.tuples(values, values), max_size=30), st.integers(1, 8))
def test_promising(points: list[tuple[float, float]], keep: int) -> None:
    seconds, memory = (np.array([p[i] for p in points], float) for i in (0, 1))
    chosen = promising(seconds, memory, keep)
    usable = [i for i, p in enumerate(points) if max(p) < math.inf]
    assert len(chosen) == len(set(chosen)) == min(keep, len({points[i] for i in usable}))
    assert set(chosen) <= set(usable)
    assert list(seconds[chosen]) == sorted(seconds[chosen])
    if usable:
        assert points[chosen[0]] == min(points[i] for i in usable)
        if keep > 1:  # the smallest is included
            assert min(memory[chosen]) == min(memory[usable])


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["v6e-4", "v6e-16", "v5p-16", "tpu7x-8", "v5e-8"]),
    st.tuples(*[st.sampled_from([8, 48, 256, 4096])] * 3),
    st.integers(1, 2),
    st.integers(1, 6),
)
def test_layouts_are_legal(
    name: str, sizes: tuple[int, int, int], num_slices: int, keep: int
) -> None:
    found_machine = machine(name, num_slices)
    m, k, n = sizes
    found = product_layouts(Product(m, k, n, 2), found_machine, keep)
    assert len(found.layouts) <= keep
    for one in found.layouts:
        assert one.mesh.size == topology(name, num_slices).devices
        assert sorted(one.mesh.device_ids) == list(range(one.mesh.size))
        blocks = 0
        shapes = ((m, k), (k, n), (m, n))
        for spec, shape in zip((*one.specs, one.out_spec), shapes, strict=True):
            blocks += 2 * math.prod(pr.NamedSharding(one.mesh, spec).shard_shape(shape))
        assert one.memory_bytes == blocks
        assert one.received_bytes is not None
        assert one.received_bytes >= 0
        if num_slices > 1:
            assert one.mesh.axis_names[0] == "slice"
            assert one.mesh.shape[0] == num_slices
            of_slice = np.reshape(one.mesh.device_ids, one.mesh.shape) // found_machine.devices
            assert (of_slice == np.arange(num_slices).reshape(-1, *[1] * (of_slice.ndim - 1))).all()


def test_what_cannot_fit_is_thrown_away() -> None:
    found = product_layouts(Product(131072, 131072, 131072, 2), machine("v6e-16"), 8)
    assert 0 < found.too_large < found.considered
    assert all(one.memory_bytes <= topology("v6e-16").hbm_bytes for one in found.layouts)
    nothing = product_layouts(Product(2**20, 2**20, 2**20, 2), machine("v6e-4"), 8)
    assert nothing.layouts == ()
    assert nothing.too_large == nothing.considered > 0


def test_the_best_of_a_large_square_product_sends_nothing() -> None:
    best = product_layouts(Product(16384, 16384, 16384, 2), machine("v6e-16"), 4).layouts[0]
    assert best.received_bytes == 0
    assert best.mesh == pr.Mesh((4, 4), ("x", "y"))
    assert (best.specs, best.out_spec) == ((("x", None), (None, "y")), ("x", "y"))


def test_devices_follow_the_network_where_that_is_faster() -> None:
    """On 16 x 16 chips in order of VMs, a mesh axis of 16 shares each link with others."""
    found = machine("v6e-256")
    product = Product(16384, 16384, 16384, 2)
    by_vm = layout_of(product, found, default_mesh(256), (("x", "y"), ("x", "y")), ("x", "y"))
    small = min(product_layouts(product, found, 8).layouts, key=lambda one: one.memory_bytes)
    assert small.link_seconds < by_vm.link_seconds / 4
    assert any(not one.mesh.all_devices for one in product_layouts(product, found, 8).layouts)


def test_slices_are_joined_by_the_axis_that_sends_least() -> None:
    found = product_layouts(Product(8192, 8192, 8192, 2), machine("v6e-16", 2), 8)
    assert found.layouts[0].slice_seconds == 0
    assert all(one.mesh.axis_names[0] == "slice" for one in found.layouts)


def test_speeds_are_those_of_a_device() -> None:
    assert machine("v6e-16").flops == 918e12
    assert machine("v6e-16", dtype="int8").flops == 1836e12
    assert machine("v6e-16", dtype="float8_e4m3fn").flops == 918e12
    assert machine("v6e-16", dtype="float32").flops == 918e12
    half = machine("tpu7x-8")
    assert (half.devices, half.flops, half.memory_bandwidth) == (8, 2307e12 / 2, 7380e9 / 2)
    assert machine("v6e-16").link_bandwidth == 100e9
    assert (
        machine("v4-8", 2).slice_bandwidth == 3.125e9
    )  # not published, so the smallest published value


def test_another_program() -> None:
    found = program_layouts(((4096, 128),), 2, machine("v6e-16"), 6)
    assert found.layouts[0].memory_bytes == 2 * 4096 * 128 / 16
    assert all(one.out_spec is None and one.received_bytes is None for one in found.layouts)
    odd = program_layouts(((7, 3),), 2, machine("v6e-16"), 6)
    assert all(spec == (None, None) for one in odd.layouts for spec in one.specs)


def test_devices_that_are_here() -> None:
    with pytest.raises(pr.InvalidArgumentError, match="platform must be cpu or gpu, got 'tpu'"):
        local_machine("tpu", 8)
    with pytest.raises(pr.InvalidArgumentError, match="whole number from 1, got 0"):
        local_machine("cpu", 0)
