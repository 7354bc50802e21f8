"""Bodies of the contract suite's programs, and their NumPy oracles.

Processes that run Julia import this, too, so it does not import JAX.
"""

from typing import Any


def add_transposed(x: Any) -> Any:
    """x + x'."""
    return x + x.T


def sums(x: Any) -> Any:
    """Row sums and the full sum: two outputs, one of them 0-d."""
    return x.sum(axis=1), x.sum()


def scaled(x: Any, factor: Any, *, power: int) -> Any:
    """A 0-d argument and a static one."""
    return factor * x**power


def over(x: Any, *, number: float) -> Any:
    """A static argument that distinguishes 0.0 and -0.0."""
    return x / number


def filled() -> Any:
    """No arguments."""
    import jax.numpy as jnp

    return jnp.arange(8.0)


def turned(x: Any) -> Any:
    """Three dimensions in another order."""
    return x.transpose(2, 0, 1)


def one_in_a_tuple(x: Any) -> Any:
    """A tuple with one array."""
    return (x + 1,)


def as_dict(x: Any) -> Any:
    """A dictionary whose keys are not in the order in which they are written."""
    return {"w": x + 1, "b": x.sum(axis=0)}


def nested(x: Any) -> Any:
    """Containers in containers, and None."""
    return {"pair": (x, [x.sum(), x.max()]), "none": None}


def total(tree: Any) -> Any:
    """A tree as the argument."""
    return tree["w"] + tree["layers"][0] + tree["layers"][1] + tree["bias"][0]


def of_layer(layer: Any) -> Any:
    """A dataclass that holds a namedtuple."""
    return layer.w + layer.b.first + layer.b.second


def nothing(x: Any) -> Any:
    """No result."""


def empty(x: Any) -> Any:
    """An empty result."""
    return ()


def in_a_list(x: Any) -> Any:
    """A list of one array."""
    return [x]


def plus(x: Any, y: Any) -> Any:
    """Two arguments."""
    return x + y


def minus(x: Any, y: Any) -> Any:
    """Two arguments whose order matters."""
    return x - y


runs = 0


def counted(x: Any) -> Any:
    """How often this was traced, added."""
    global runs
    runs += 1
    return x + runs


def moved(*arguments: Any, steps: tuple[tuple[int, int, int], ...]) -> Any:
    """Steps that give one array the elements of another, exchange them, or add them."""
    held = list(arguments)
    for kind, i, j in steps:
        x, y = held[i], held[j]
        if kind == 1:
            held[i], held[j] = y, x
        else:
            held[i] = x + y if kind == 3 else y
    return tuple(held)
