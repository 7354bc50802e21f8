"""Right and wrong user programs; named by ``tests.crosscheck.user_programs:NAME``."""

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.check import member

SQUARE = (("n", "n"),)
HERE = "tests.crosscheck.user_programs"


def double(x: Any) -> Any:
    return x * 2


def two(x: Any) -> Any:
    return x * 2, x.sum(axis=1)


def raises_here(x: Any) -> Any:
    if pr.process_index() == 1:
        member.AGREE_SECONDS = 1.0  # not 20
        raise ValueError("no luck on this process")
    return x.sum() + x * 0  # a collective operation, so that the other processes wait


def raises(x: Any) -> Any:
    raise ValueError("no luck at all")


def sleeps(x: Any) -> Any:
    time.sleep(100)
    return x * 2


def leaves(x: Any) -> Any:
    if pr.process_index() == 1:
        os._exit(9)
    return x.sum() + x * 0


def same_shape(x: np.ndarray) -> np.ndarray:
    return x.sum() + x * 0


def row(x: Any) -> Any:
    return x[0]


def norms(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.linalg.norm(x, axis=1)


def numpy_norms(x: np.ndarray) -> Any:
    return np.linalg.norm(x[:, None], 2, axis=(1, 2))  # the singular value of a row


@dataclass
class Both:
    """A result of two arrays, in a dataclass."""

    largest: Any
    places: Any


def kinds(x: Any) -> Any:
    """Results of other types than the program's, in a tree."""
    import jax.numpy as jnp

    y = x @ x
    return {"z": [y > 0, x.sum()], "a": Both(jnp.max(y, axis=1), jnp.argmax(y, axis=1)), "b": None}


def numpy_kinds(x: Any) -> Any:
    y = x @ x
    return {"z": [y > 0, x.sum()], "a": Both(np.max(y, axis=1), np.argmax(y, axis=1)), "b": None}


def copied(x: Any) -> Any:
    return x


def shortened(x: Any) -> Any:
    return x.astype("bfloat16")


def positive(x: Any) -> Any:
    return x > 0


def not_negative_sum(x: Any) -> Any:
    return x + x.sum() > 0


def top(x: Any) -> Any:
    import jax

    return jax.lax.top_k(x, 3)


def numpy_top(x: np.ndarray) -> Any:
    order = np.argsort(-x, axis=1, kind="stable")[:, :3]
    return [np.take_along_axis(x, order, axis=1), order]


def last_top(x: np.ndarray) -> Any:
    values, order = numpy_top(x)
    return [values, order + (order == 2)]


def _each(function: Any, x: Any, cut: bool) -> Any:
    """A function of each device's block and number; the results are taken for copies."""
    import jax
    from jax.sharding import PartitionSpec as P

    def body(block: Any) -> Any:
        return function(block, jax.lax.axis_index(("x", "y")))

    spec = P("x", "y") if cut else P()
    return jax.shard_map(body, in_specs=spec, out_specs=P(), check_vma=False)(x)


def forgotten_psum(x: Any) -> Any:
    return _each(lambda block, _: block.sum(), x, True)


def nudged_copy(x: Any) -> Any:
    return _each(lambda total, device: total * (1 + 2e-7 * (device == 2)), x.sum(), False)


def total(x: Any) -> Any:
    return x.sum()


def columns(x: Any) -> Any:
    return x.sum(axis=0)


def affine(x: Any, w: Any, c: Any) -> Any:
    return x @ w + c


def two_steps(x: Any, w: Any, c: Any, *, again: bool = True) -> Any:
    """Two steps of descent on a linear model, the second from a new gradient."""
    gradient = x.T @ (x @ w - c) / len(x)
    first = w - gradient / 4
    return first - (x.T @ (x @ first - c) / len(x) if again else gradient) / 4


def gelu(x: Any) -> Any:
    import jax

    return jax.nn.gelu(x)


def numpy_gelu(x: np.ndarray) -> Any:
    return x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) / 2


def stencil(x: Any) -> Any:
    import jax.numpy as jnp

    padded = jnp.pad(x, ((0, 0), (1, 1)))
    return padded[:, :-2] - 3 * x + 2 * padded[:, 2:]


def numpy_stencil(x: np.ndarray) -> Any:
    padded = np.pad(x, ((0, 0), (1, 1)))
    return padded[:, :-2] - 3 * x + 2 * padded[:, 2:]


def deep(x: Any, w: Any) -> Any:
    import jax.numpy as jnp

    for _ in range(16):
        x = jnp.tanh(x @ w)
    return 0.9 * x  # wrong, but no bound of so long a chain shows it


def numpy_deep(x: np.ndarray, w: np.ndarray) -> Any:
    for _ in range(16):
        x = np.tanh(x @ w)
    return x


def vanishing(x: Any) -> Any:
    return x.sum(axis=1) - x.sum(axis=1)


def more_on_process_1(x: Any) -> Any:
    import jax
    from jax.sharding import PartitionSpec as P

    def body(block: Any) -> Any:
        return block * (1 + 0.3 * (jax.lax.axis_index(("x", "y")) >= 2))

    return jax.shard_map(body, in_specs=P("x", "y"), out_specs=P("x", "y"))(x)


def _second() -> bool:
    """Whether this is the second runtime, for bodies that differ as one in Julia might."""
    return os.environ["PYREACTANT_BACKEND"] != "jax"


def square(x: Any) -> Any:
    return (x @ x).T if _second() else x @ x


def numpy_square(x: np.ndarray) -> np.ndarray:
    return x @ x


def half_as_much(x: Any) -> Any:
    return x[: len(x) // 2] if _second() else x


def half_as_wide(x: Any) -> Any:
    return x.astype("float16") if _second() else x


def one_or_two(x: Any) -> Any:
    return (x, x) if _second() else x


def program(name: str, jax: str, oracle: str | None, **more: Any) -> pr.Program:
    return pr.Program(
        name, jax=f"{HERE}:{jax}", oracle=oracle and f"{HERE}:{oracle}", inputs=SQUARE, **more
    )


sums_of_columns = program("sums_of_columns", "columns", "columns")
of_stencil = program("stencil", "stencil", "numpy_stencil")
of_affine = pr.Program(
    "affine", jax=f"{HERE}:affine", oracle=f"{HERE}:affine", inputs=(("n", "n"), ("n", "n"), ("n",))
)
of_gelu = program("gelu", "gelu", "numpy_gelu")
of_steps = pr.Program(
    "steps", jax=f"{HERE}:two_steps", oracle=f"{HERE}:two_steps", inputs=(("n", "n"),) * 3
)
of_layers = pr.Program(
    "deep", jax=f"{HERE}:deep", oracle=f"{HERE}:numpy_deep", inputs=(("n", "n"), ("n", "n"))
)
of_nothing = program("of_nothing", "vanishing", "vanishing")
wrong_on_one = program("wrong_on_one", "more_on_process_1", "copied")
right = program("right", "double", "double")
blind = program("blind", "double", None)
wrong = program("wrong", "double", "same_shape")
estimated = program("estimated", "norms", "numpy_norms")
of_kinds = program("of_kinds", "kinds", "numpy_kinds")
too_short = program("too_short", "shortened", "copied")
short_as_said = program("short_as_said", "shortened", "copied", out_dtypes=("bfloat16",))
above_zero = program("above_zero", "positive", "positive")
wrong_signs = program("wrong_signs", "positive", "not_negative_sum")
top_three = program("top_three", "top", "numpy_top")
wrong_places = program("wrong_places", "top", "last_top")
partial_sums = program("partial_sums", "forgotten_psum", "total")
nudged = program("nudged", "nudged_copy", "total")
two_results = program("two_results", "two", "two")
raises_on_one = program("raises_on_one", "raises_here", "same_shape")
raises_on_all = program("raises_on_all", "raises", "double")
leaves_early = program("leaves_early", "leaves", "same_shape")
turned_round = program("turned_round", "square", "numpy_square")
other_shape = program("other_shape", "half_as_much", None)
other_dtype = program("other_dtype", "half_as_wide", None)
other_count = program("other_count", "one_or_two", None)
slow = program("slow", "sleeps", "double")
fewer_results = program("fewer_results", "double", "two")
another_shape = program("another_shape", "row", "double")


def rotate(x: Any, angle: Any, numpy: Any) -> Any:
    """Pairs of columns turned by an angle."""
    c, s = numpy.cos(angle), numpy.sin(angle)
    a, b = x[:, ::2], x[:, 1::2]
    return numpy.concatenate([a * c - b * s, a * s + b * c], axis=1)


def embedded(x: Any) -> Any:
    import jax.numpy as jnp

    n, d = x.shape
    frequency = 10000.0 ** (-jnp.arange(0, d, 2) / d)
    return rotate(x, jnp.arange(n)[:, None] * frequency, jnp)


def embedded_in_short(x: Any) -> Any:
    import jax.numpy as jnp

    return embedded(x.astype(jnp.bfloat16)).astype(x.dtype)


def embedded_oracle(x: Any) -> Any:
    n, d = x.shape
    return rotate(x, np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d), np)


def embedded_oracle_without_rule(x: Any) -> Any:
    n, d = x.shape
    angle = np.kron(np.arange(n), 10000.0 ** (-np.arange(0, d, 2) / d)).reshape(n, d // 2)
    return rotate(x, angle, np)


def attended(x: Any, ahead: int, numpy: Any) -> Any:
    """Attention of rows with those before them and some ahead, by indices that are computed."""
    i, j = numpy.arange(len(x))[:, None], numpy.arange(len(x))
    scores = numpy.where(j - ahead <= i, x @ x.T / 2, -1e30)
    e = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ x


def attended_to_the_next(x: Any) -> Any:
    import jax.numpy as jnp

    return attended(x, 1, jnp)


def attended_to_two(x: Any) -> Any:
    import jax.numpy as jnp

    return attended(x, 2, jnp)


def attended_oracle(x: Any) -> Any:
    return attended(x, 1, np)


def waved(x: Any) -> Any:
    import jax.numpy as jnp

    return x + jnp.sin(jnp.linspace(0.0, 50.0, x.shape[0]))[:, None]


def waved_oracle(x: Any) -> Any:
    return x + np.sin(np.linspace(0.0, 50.0, x.shape[0]))[:, None]


def variance_in_one_pass(x: Any) -> Any:
    return (x * x).mean(axis=1) - x.mean(axis=1) ** 2


def variance(x: Any) -> Any:
    return x.var(axis=1)


def no_number(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.log(-1 - jnp.abs(x))


def no_number_oracle(x: Any) -> Any:
    return np.log(-1 - np.abs(x))


rotary = pr.Program("rotary", jax=embedded, oracle=embedded_oracle, inputs=SQUARE)
rotary_without_rule = pr.Program(
    "rotary_without_rule", jax=embedded, oracle=embedded_oracle_without_rule, inputs=SQUARE
)
next_one = pr.Program("next_one", jax=attended_to_the_next, oracle=attended_oracle, inputs=SQUARE)
next_two = pr.Program("next_two", jax=attended_to_two, oracle=attended_oracle, inputs=SQUARE)
wave = pr.Program("wave", jax=waved, oracle=waved_oracle, inputs=SQUARE)
short_rotary = pr.Program(
    "short_rotary", jax=embedded_in_short, oracle=embedded_oracle, inputs=SQUARE
)
one_pass = pr.Program("one_pass", jax=variance_in_one_pass, oracle=variance, inputs=SQUARE)
all_nan = pr.Program("all_nan", jax=no_number, oracle=no_number_oracle, inputs=SQUARE)
