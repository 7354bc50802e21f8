"""Counter-based random numbers: functions of the row's key and the column, equal bit by bit.

The number in column j is a hash of ``j * 0x9E3779B9 + key`` modulo 2**32: two rounds of shift,
exclusive or and multiplication, with the constants of C. Wellons's lowbias32. Its upper 24 bits
make a float32 in [0, 1). The arithmetic is on integers, so nothing is rounded.
"""

from typing import Any

import numpy as np

from ...arrays.sharding import Index
from .build import Subscripts, subscript_case
from .case import Input, Inputs, Oracle


def random_fill(keys: Any) -> Any:
    """A matrix of random numbers, in JAX."""
    import jax
    import jax.numpy as jnp

    n = keys.shape[0]
    columns = jax.lax.broadcasted_iota(jnp.uint32, (n, n), 1)
    bits = _hash(keys[:, None], columns, jnp.uint32)
    return (bits >> jnp.uint32(8)).astype(jnp.float32) * jnp.float32(2**-24)


def random_fill_oracle(keys: Any) -> Any:
    """NumPy."""
    return _fill(keys, slice(0, len(keys)))


def _fill(keys: Any, columns: slice) -> np.ndarray:
    bits = _hash(keys[:, None], np.arange(columns.start, columns.stop, dtype=np.uint32), np.uint32)
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)


def _hash(key: Any, place: Any, number: Any) -> Any:
    bits = place * number(0x9E3779B9) + key
    bits = (bits ^ (bits >> number(16))) * number(0x7FEB352D)
    bits = (bits ^ (bits >> number(15))) * number(0x846CA68B)
    return bits ^ (bits >> number(16))


def _inputs(n: int, dtype: str) -> tuple[Input, ...]:
    return (Input("keys", (n,), "uint32", kind="indices", high=2**32 - 1),)


def _block(output: int, index: Index, inputs: Inputs) -> Any:
    return _fill(inputs.read(0, (index[0],)), index[1])


RANDOM_FILL = subscript_case(
    random_fill,
    "random numbers from a counter",
    Subscripts("i->ij"),
    random_fill_oracle,
    dtypes=("float32",),
    inputs=_inputs,
    oracle=Oracle(_block),
    exact=True,
)
