"""A lowered Julia body as a function of JAX, with derivatives if there are modules of them.

One primitive is the function (value), its derivative linear in tangents (forward), or the one
linear in cotangents (reverse). The last two are each other's transpose, so JAX itself combines them
in `grad`, `vjp`, `jvp`, `linearize`, loops and `jax.checkpoint`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import dispatch
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ....base.errors import DTypeError, InvalidArgumentError
from ...array import ShardedArray
from . import x64
from .convert import JaxTrees
from .stablehlo import Module, listing, words

VALUE, FORWARD, REVERSE = "value", "forward", "reverse"
_TREES = JaxTrees()


Derivatives = Mapping[str, Module | str]
"""Modules of the derivatives, or why there is none, by mode. The forward one takes arguments and
tangents and returns the tangents of the results; the reverse one takes arguments and cotangents of
the results and returns those of the arguments."""


@dataclass(frozen=True, eq=False, slots=True)
class _Body:
    """What the primitive needs of a function; the sizes are those of the modules."""

    what: str
    value: Module
    derivatives: Derivatives | None

    def module(self, mode: str) -> Module:
        module = self.value if mode == VALUE else (self.derivatives or {})[mode]
        if isinstance(module, Module):
            return module
        raise InvalidArgumentError(
            f"{self.what}: Enzyme has no {mode} derivative of it: {module}; differentiate it in "
            "the other mode (jax.jvp is forward, jax.grad and jax.vjp are reverse), or write the "
            "Julia function with other operations"
        )


class JuliaFunction:
    """A Julia function for use in JAX: under `jax.jit`, in loops, sharded as its caller chooses.

    `pyreactant.as_jax` makes it. Its arrays have their axes in Python's order.

    Args:
        what: The function in the words of a message.
        name: Its name.
        module: The lowered body, whose sizes are reversed.
        structure: Structure of the tuple of arguments.
        results: The results' structure, with the module's number of each result.
        derivatives: Its derivatives; None refuses to differentiate.
        record: The text that `as_text` returns.
    """

    def __init__(
        self,
        what: str,
        name: str,
        module: Module,
        structure: Any,
        results: Any,
        derivatives: Derivatives | None,
        record: str,
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self._what = what
        self._body = _Body(what, module, derivatives)
        self._arguments = [reversed_aval(aval) for aval in module.arguments]
        self._structure = structure
        self._numbers, self._results = _TREES.flatten(results)
        self._record = record
        traced = partial(_run, self._body)
        traced.__name__ = name  # type: ignore[attr-defined]
        self._jitted = jax.jit(traced)

    def __call__(self, *args: Any) -> Any:
        """The results for JAX's arrays, with the structure that the Julia function returns.

        Raises:
            InvalidArgumentError: Structure, shapes or dtypes are not those it was lowered for.
            DTypeError: It has 64-bit types, and JAX's x64 mode is off.
        """
        leaves, structure = _TREES.flatten(args)
        if structure != self._structure:
            raise InvalidArgumentError(
                f"{self._what} was lowered for arguments of the structure {self._structure}, got "
                f"{structure}; call as_jax for arguments like these"
            )
        if self._body.value.wide and not x64.is_on():
            raise DTypeError(
                f"{self._what} has 64-bit types: ({listing(self._arguments)}) -> "
                f"({listing(self._body.value.results)}), and JAX's x64 mode is off; call it inside "
                "'with jax.enable_x64(True):', or lower it for 32-bit arguments"
            )
        got = [self._aval_of(number, leaf) for number, leaf in enumerate(leaves)]
        if list(map(words, got)) != list(map(words, self._arguments)):
            raise InvalidArgumentError(
                f"{self._what} was lowered for ({listing(self._arguments)}), got ({listing(got)}); "
                "give such arrays, or call as_jax for these"
            )
        results = self._jitted(*_alike(leaves, got))
        return _TREES.unflatten(self._results, [results[number] for number in self._numbers])

    def as_text(self) -> str:
        """The module as text, in the form that `as_jax(stablehlo=)` reads; sizes are reversed."""
        return self._record

    def __repr__(self) -> str:
        return f"<{self._what}, lowered for ({listing(self._arguments)})>"

    def _aval_of(self, number: int, leaf: Any) -> Any:
        if isinstance(leaf, ShardedArray):
            raise InvalidArgumentError(
                f"{self._what} takes JAX's arrays, got a pyreactant.ShardedArray as argument "
                f"{number}; give its to_jax()"
            )
        try:
            return jax.typeof(leaf)
        except TypeError:
            raise InvalidArgumentError(
                f"{self._what} takes arrays, got {type(leaf).__name__} as argument {number}"
            ) from None


def reversed_aval(aval: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array in Python's order, for one in a module of Reactant's."""
    return jax.ShapeDtypeStruct(aval.shape[::-1], aval.dtype)


def _alike(leaves: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """The arrays; inside `shard_map` all vary over the axes over which one does."""
    varying = list(map(_varying, avals))
    union: frozenset[str] = frozenset().union(*varying)
    return [
        jax.lax.pcast(leaf, tuple(union - own), to="varying") if union - own else leaf
        for leaf, own in zip(leaves, varying, strict=True)
    ]


def _run(body: _Body, *leaves: Any) -> list[Any]:
    results = _julia.bind(*map(jnp.transpose, leaves), body=body, mode=VALUE)
    return list(map(jnp.transpose, results))


_julia = Primitive("julia_function")
_julia.multiple_results = True
_julia.def_impl(partial(dispatch.apply_primitive, _julia))


def _varying(aval: Any) -> frozenset[str]:
    """The axes of `shard_map` over which an array varies."""
    axes: frozenset[str] = aval.manual_axis_type.varying
    return axes


def _outputs(*args: Any, body: _Body, mode: str) -> list[Any]:
    """What JAX knows of results; inside `shard_map` they vary as the arguments do."""
    avals = body.value.arguments if mode == REVERSE else body.value.results
    if not args or not _varying(args[0]):
        return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in avals]
    mesh, varying = args[0].sharding.mesh, args[0].manual_axis_type
    return [
        jax.core.ShapedArray(
            aval.shape,
            aval.dtype,
            sharding=jax.NamedSharding(mesh, jax.P(*[None] * len(aval.shape))),
            manual_axis_type=varying,
        )
        for aval in avals
    ]


def _lower(*args: Any, body: _Body, mode: str) -> list[Any]:
    return body.module(mode).bind(args)


def _differentiate(primals: Any, tangents: Any, *, body: _Body, mode: str) -> tuple[Any, Any]:
    if body.derivatives is None:
        raise InvalidArgumentError(
            f"{body.what} has no derivatives, because it was made without them; make it with "
            "as_jax(..., differentiable=True), which needs the package enzyme-ad, or keep it out "
            "of the differentiation with jax.lax.stop_gradient on its arguments"
        )
    count = len(body.value.arguments)
    results = _julia.bind(*primals, body=body, mode=mode)
    if mode == VALUE:
        linear, mode = tangents, FORWARD
    elif all(type(tangent) is ad.Zero for tangent in tangents[:count]):
        linear = tangents[count:]  # a derivative is linear in these: its own is itself
    else:
        raise InvalidArgumentError(
            f"{body.what} has first derivatives only, and something differentiates one of them "
            "(jax.hessian, grad of grad); compute the second derivative by differences of first "
            "ones, or write the function with JAX"
        )
    given = map(ad.instantiate_zeros, linear)
    return results, _julia.bind(*primals[:count], *given, body=body, mode=mode)


def _transpose(cotangents: Any, *args: Any, body: _Body, mode: str) -> list[Any]:
    count = len(body.value.arguments)
    other = REVERSE if mode == FORWARD else FORWARD
    given = map(ad.instantiate_zeros, cotangents)
    derivatives = _julia.bind(*args[:count], *given, body=body, mode=other)
    return [None] * count + [
        derivative if ad.is_undefined_primal(argument) else None
        for derivative, argument in zip(derivatives, args[count:], strict=True)
    ]


def _refuse_batch(args: Any, dims: Any, *, body: _Body, mode: str) -> Any:
    raise InvalidArgumentError(
        f"{body.what} takes arrays of fixed shapes, so jax.vmap cannot map it, and neither can "
        "jax.jacrev, jax.jacfwd and jax.hessian, which use vmap; use jax.lax.map, a loop over "
        "jax.vjp or jax.jvp, or lower a Julia function for the whole batch"
    )


_julia.def_abstract_eval(_outputs)
mlir.register_lowering(_julia, mlir.lower_fun(_lower, multiple_results=True))
ad.primitive_jvps[_julia] = _differentiate
ad.primitive_transposes[_julia] = _transpose
batching.primitive_batchers[_julia] = _refuse_batch
