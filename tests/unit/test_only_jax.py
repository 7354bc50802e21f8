"""What belongs to JAX raises on other runtimes, and says what to do."""

from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from tests.backend.nothing import running_nothing

MESH = pr.Mesh((8,), ("x",))


class Key:
    """As an array of `jax.random.key`."""

    shape = ()
    dtype = "key<fry>"


@pytest.mark.parametrize(
    ("use", "kind", "message"),
    [
        (
            lambda: pr.device_put(Key(), pr.NamedSharding(MESH, ())),
            pr.DTypeError,
            "keys of jax.random are arrays of JAX's own, and this process runs 'nothing'; place "
            "jax.random.key_data",
        ),
        (
            lambda: pr.from_jax(np.ones(3)),
            pr.StateError,
            "from_jax needs the runtime 'jax', but this process runs 'nothing'; give device_put",
        ),
        (MESH.to_jax, pr.StateError, "to_jax needs the runtime 'jax', but this process runs"),
        (
            lambda: pr.device_put(np.ones(8), pr.NamedSharding(MESH, ("x",))).to_jax(),
            pr.StateError,
            "to_jax needs the runtime 'jax', but this process runs",
        ),
    ],
)
def test_only_jax(use: Any, kind: type[Exception], message: str) -> None:
    with running_nothing(1, 8), pytest.raises(kind) as caught:
        use()
    assert message in str(caught.value)
