"""Digests of what devices hold, which each device computes of its own block."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...backend import DIGEST_WORDS
from ...mixed import weights
from . import x64
from .convert import Devices

_STEP = 0x9E3779B9


def block_digests(devices: Devices, value: Any) -> dict[int, np.ndarray]:
    """The digest of each block of this process, by the position of its device; uint32[4]."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    with x64.context(x64.is_wide(value.dtype)):
        # All devices begin before the first is waited for.
        begun = {
            devices.position[shard.device]: _digest(shard.data)
            for shard in value.addressable_shards
        }
        return {position: np.asarray(digest) for position, digest in begun.items()}


def copied(value: Any) -> Any:
    """The same array in other memory."""
    with x64.context(x64.is_wide(value.dtype)):
        return jax.jit(jnp.copy, out_shardings=value.sharding)(value)


@jax.jit
def _digest(block: Any) -> Any:
    return jnp.stack([word(block, step=k * _STEP % 2**32) for k in range(DIGEST_WORDS)])


def word(block: Any, *, step: int = 0) -> Any:
    """A word of a digest: the sum of the block's words times `weights`, modulo 2**32.

    These have up to 32 bits, and the imaginary parts come after all real ones. One wrong word
    always shows.
    """
    parts = [block.real, block.imag] if jnp.iscomplexobj(block) else [block]
    if block.dtype == bool:
        parts = [block.astype(jnp.uint8)]
    size = 8 * min(4, parts[0].dtype.itemsize)
    words = [lax.bitcast_convert_type(part, f"uint{size}").ravel() for part in parts]
    both = jnp.concatenate(words).astype(jnp.uint32)
    place = lax.iota(np.uint32, both.size)
    return (both * weights(place + np.uint32(step))).sum(dtype=jnp.uint32)
