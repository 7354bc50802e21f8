"""64-bit types keep their values, and 32-bit programs stay 32-bit: the JAX runtime alone."""

from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from tests.backend.common import MESH, XY, numbers

pytestmark = [pytest.mark.only("jax"), pytest.mark.usefixtures("backend")]

WHOLE = pr.NamedSharding(MESH, ())
ROWS = pr.NamedSharding(MESH, (("x", "y"),))
LARGE = np.arange(8) + 2**40
WIDE = ("int64", "uint64", "float64", "complex128")


def _values(name: str) -> np.ndarray:
    """Values that 32 bits do not hold."""
    if name in ("int64", "uint64"):
        return LARGE.astype(name)
    return (1 + np.arange(8) * 2.0**-40).astype(name)


def test_the_setting_of_jax_is_left_alone() -> None:
    import jax

    assert not jax.config.jax_enable_x64
    assert jax.numpy.ones(3).dtype == np.float32
    assert jax.numpy.arange(3).dtype == np.int32


@pytest.mark.parametrize("name", WIDE)
def test_values_are_not_truncated(name: str) -> None:
    x = _values(name)
    a = pr.device_put(x, ROWS)
    moved = pr.reshard(a, WHOLE)
    f = pr.compile(lambda x: x + x, a)
    for array, expected in ((a, x), (moved, x), (f(a), x + x), (f(f(a)), 4 * x)):
        assert array.dtype == x.dtype
        np.testing.assert_array_equal(array.gather(), expected)
        np.testing.assert_array_equal(np.asarray(array), expected)
    local = pr.from_process_local(x, ROWS)
    called = pr.from_callback((8,), name, ROWS, x.__getitem__)
    for array in (local, called):
        np.testing.assert_array_equal(array.gather(), x)


def test_from_jax_of_64_bits() -> None:
    import jax

    with jax.enable_x64(True):
        array = jax.device_put(LARGE, ROWS.to_jax())
    ours = pr.from_jax(array)
    assert ours.dtype == np.int64
    np.testing.assert_array_equal(ours.gather(), LARGE)
    np.testing.assert_array_equal(pr.compile(lambda x: x * 2, ours)(ours).gather(), LARGE * 2)
    with pytest.raises(pr.DTypeError, match=r"jax\.enable_x64\(True\)"):
        ours.to_jax()


def test_a_program_of_float32_stays_float32() -> None:
    import jax.numpy as jnp

    a = pr.device_put(numbers((8, 8)), XY)
    f = pr.compile(lambda x: (x + jnp.ones(x.shape), x * np.pi, jnp.arange(3)), a)
    assert [str(out.dtype) for out in f(a)] == ["float32", "float32", "int32"]
    assert "f64" not in f.as_text()


def test_static_numbers_of_numpy_count_and_pythons_do_not() -> None:
    a = pr.device_put(numbers((8, 8)), XY)

    def body(x: Any, *, factor: Any) -> Any:
        return x * factor

    for factor, dtype in (
        (0.5, "float32"),
        (np.float32(0.5), "float32"),
        (np.float64(0.5), "float64"),
        ((0.5, np.float64(0.5)), "float64"),
    ):
        picked = (lambda x, *, factor: x * factor[1]) if isinstance(factor, tuple) else body
        assert pr.compile(picked, a, static={"factor": factor})(a).dtype == dtype
    assert pr.Program("p", jax=body)(a, factor=np.float64(2)).dtype == np.float64


def test_64_bits_on_request() -> None:
    import jax.numpy as jnp

    a = pr.device_put(numbers((8, 8)), XY)
    assert pr.compile(lambda x: x + jnp.ones(8), a, x64=True)(a).dtype == np.float64
    assert pr.compile(lambda x: x + jnp.ones(8), a)(a).dtype == np.float32


def test_integers_do_not_make_floats_wider() -> None:
    import jax.numpy as jnp

    labels = pr.device_put(np.arange(8), ROWS)
    weights = pr.device_put(np.ones(8, np.float32), ROWS)

    def loss(labels: Any, weights: Any) -> Any:
        return (weights * (labels + jnp.zeros(8))).sum()

    with pytest.raises(pr.DTypeError) as caught:
        pr.compile(loss, labels, weights)
    assert "gives a float64 result from floating arguments of at most 32 bits" in str(caught.value)
    assert "argument 0 (int64[8])" in str(caught.value)
    assert "give int32 instead, or compile with x64=True" in str(caught.value)
    assert pr.compile(loss, labels, weights, x64=True)(labels, weights).dtype == np.float64
    short = pr.device_put(np.arange(8, dtype=np.int32), ROWS)
    assert pr.compile(loss, short, weights)(short, weights).dtype == np.float32
    right = pr.compile(lambda n, w: w[n], labels, weights)(labels, weights)
    assert right.dtype == np.float32
    double = pr.device_put(np.ones(8), ROWS)
    assert pr.compile(loss, double, weights)(double, weights).dtype == np.float64


@pytest.mark.usefixtures("python_callbacks")
def test_callbacks_see_64_bits() -> None:
    import jax

    seen: list[Any] = []

    def on_host(x: Any) -> Any:
        seen.append(np.asarray(x).dtype)
        return np.asarray(x) * 2

    def body(x: Any) -> Any:
        return jax.pure_callback(on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    a = pr.device_put(LARGE, WHOLE)
    found = pr.compile(body, a, out_sharding=WHOLE)(a)
    np.testing.assert_array_equal(found.gather(), LARGE * 2)
    assert set(seen) == {np.dtype(np.int64)}


def test_donation_of_64_bits() -> None:
    a = pr.device_put(LARGE, ROWS)
    f = pr.compile(lambda x: x + 1, a, donate=0)
    b = f(f(a))
    np.testing.assert_array_equal(b.gather(), LARGE + 2)
    with pytest.raises(pr.StateError, match="was donated"):
        a.gather()


def test_the_users_own_context() -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        a = pr.device_put(numbers((8, 8)), XY)
        f = pr.compile(lambda x: x + jnp.ones(8), a)
        assert f(a).dtype == np.float64
        assert f(a).value.dtype == np.float64
        labels = pr.device_put(np.arange(8), ROWS)
        assert (
            pr.compile(lambda n, x: x * (n + jnp.zeros(8)), labels, a)(labels, a).dtype
            == np.float64
        )
    assert pr.compile(lambda x: x + jnp.ones(8), a)(a).dtype == np.float32
    np.testing.assert_array_equal(f(a).gather(), numbers((8, 8)) + 1.0)


def test_numbers_of_python_have_the_default_type() -> None:
    import jax

    kinds = [str(pr.device_put(n, WHOLE).dtype) for n in (True, 3, 0.1, 1j, 2**40, np.float64(3))]
    assert kinds == ["bool", "int32", "float32", "complex64", "int64", "float64"]
    assert int(pr.device_put(2**40, WHOLE)) == 2**40
    with jax.enable_x64(True):
        assert pr.device_put(0.1, WHOLE).dtype == np.float64


def test_a_called_program_follows_the_settings_of_jax() -> None:
    import jax
    import jax.numpy as jnp

    program = pr.Program("p", jax=lambda x: x + jnp.ones(8))
    a = pr.device_put(numbers((8, 8)), XY)
    assert program(a).dtype == np.float32
    with jax.enable_x64(True):
        assert program(a).dtype == np.float64
    assert program(a).dtype == np.float32


def test_a_type_that_no_runtime_holds() -> None:
    import jax.numpy as jnp

    with pytest.raises(pr.DTypeError, match="does not hold int4 unchanged"):
        pr.from_jax(jnp.ones(8, "int4"))
