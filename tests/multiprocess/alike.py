"""One process of a run whose processes do the same, with functions and objects of many kinds.

``python -m tests.multiprocess.alike``: the error of each program, as JSON.
"""

import dataclasses
import functools
import io
import json
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, struct
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding, PartitionSpec

import pyreactant as pr

Act = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Layer:
    act: Act


@dataclasses.dataclass
class Plain:
    x: Any
    act: Act = dataclasses.field(metadata={"static": True})


@struct.dataclass
class OfFlax:
    x: Any
    act: Act = struct.field(pytree_node=False)


@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, x: Any, act: Any) -> None:
        self.x, self.act = x, act

    def tree_flatten(self) -> Any:
        return (self.x,), {"act": self.act, "names": frozenset(("left", "right", "up"))}

    @classmethod
    def tree_unflatten(cls, held: Any, children: Any) -> "Node":
        return cls(children[0], held["act"])


class Anonymous:
    """Its objects equal only themselves."""


def scaled(factor: float) -> Act:
    return lambda x: x * factor


def power(x: Any, n: int = 2) -> Any:
    return x**n


def use(value: Any) -> Callable[["Run"], None]:
    """A program with a static value, called if it is a function."""

    def run(run: Run) -> None:
        # What is made here is another object in each process and at each call.
        static = {"value": value() if isinstance(value, Make) else value}

        def body(x: Any, value: Any) -> Any:
            return value(x) if callable(value) and not isinstance(value, type) else x + 1

        pr.compile(body, run.x, static=static)(run.x)

    return run


@dataclasses.dataclass
class Make:
    """A static value that is made anew in each program."""

    function: Callable[[], Any]

    def __call__(self) -> Any:
        return self.function()


def pass_on(make: Callable[[Any], Any]) -> Callable[["Run"], None]:
    """A program with an argument whose tree holds a function."""

    def run(run: Run) -> None:
        def body(tree: Any) -> Any:
            return tree

        tree = make(run.x)
        pr.compile(body, tree)(tree)

    return run


class Run:
    def __init__(self) -> None:
        mesh = pr.Mesh((2, len(pr.devices()) // 2), ("x", "y"))
        self.rows = pr.NamedSharding(mesh, ("x",))
        self.whole = pr.NamedSharding(mesh, ())
        self.x = pr.device_put(np.ones((8, 4), np.float32), self.rows)


def place(run: Run, tree: Any) -> Any:
    return pr.device_put(jax.tree.map(np.asarray, tree), run.whole)


def flax_trains(run: Run) -> None:
    """Flax's TrainState, with optax, whose functions are in the tree's structure."""
    model = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(1)])
    params = model.init(jax.random.key(0), jnp.ones((8, 4)))
    made = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-2))
    state = place(run, made)

    def step(state: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean((state.apply_fn(params, x) - 3) ** 2)

        value, gradient = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradient), value

    shardings = jax.tree.map(lambda _: run.whole, state)
    f = pr.compile(step, state, run.x, donate=0, out_sharding=(shardings, run.whole))
    check_loss(f, state, run.x)


def nnx_trains(run: Run) -> None:
    model = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    graph, made = nnx.split(model)
    state = place(run, nnx.to_pure_dict(made))

    def step(state: Any, x: Any, graph: Any) -> Any:
        def loss(state: Any) -> Any:
            return jnp.mean((nnx.merge(graph, state)(x) - 3) ** 2)

        value, gradient = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda p, g: p - 0.1 * g, state, gradient), value

    f = pr.compile(step, state, run.x, static={"graph": graph}, out_sharding=run.whole)
    check_loss(f, state, run.x)


def equinox_trains(run: Run) -> None:
    made = eqx.nn.MLP(4, 1, 8, 1, activation=jax.nn.gelu, key=jax.random.key(0))
    arrays, rest = eqx.partition(made, eqx.is_array)
    model = place(run, arrays)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
    state = place(run, optimizer.init(arrays))

    def step(both: Any, x: Any) -> Any:
        model, state = both

        def loss(model: Any) -> Any:
            return jnp.mean((jax.vmap(eqx.combine(model, rest))(x) - 3) ** 2)

        value, gradient = jax.value_and_grad(loss)(model)
        updates, state = optimizer.update(gradient, state, model)
        return (eqx.apply_updates(model, updates), state), value

    f = pr.compile(step, (model, state), run.x, out_sharding=run.whole)
    check_loss(f, (model, state), run.x)


def optax_trains(run: Run) -> None:
    """An optimizer as a static value, and arrays whose tree optax made."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
    optimizer = optax.multi_transform(
        {"w": optax.adam(schedule), "b": optax.sgd(0.1)}, {"w": "w", "b": "b"}
    )
    params = {"w": np.ones((4, 1), np.float32), "b": np.zeros(1, np.float32)}
    state = place(run, (params, optimizer.init(params)))

    def step(both: Any, x: Any, optimizer: Any) -> Any:
        params, state = both

        def loss(params: Any) -> Any:
            return jnp.mean((x @ params["w"] + params["b"] - 3) ** 2)

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    static = {"optimizer": optimizer}
    f = pr.compile(step, state, run.x, static=static, out_sharding=run.whole)
    check_loss(f, state, run.x)


def check_loss(step: Any, state: Any, x: Any) -> None:
    losses = []
    for _ in range(4):
        state, loss = step(state, x)
        losses.append(float(loss))
    assert losses[-1] < losses[0], losses


def loop(run: Run) -> None:
    """Lambdas of one code, whose defaults and closures differ."""
    for n in range(3):
        for act in (lambda x, n=n: x * n, scaled(n), lambda x: x + n):  # noqa: B023
            pr.compile(lambda x, act: act(x), run.x, static={"act": act})(run.x)


def equinox_lambda(run: Run) -> None:
    layer = eqx.nn.Lambda(lambda x: x + 1)
    pr.compile(lambda x, layer: layer(x), run.x, static={"layer": layer})(run.x)


def called(run: Run) -> None:
    """A program object that is called with a function."""

    @pr.program
    def apply(x: Any, act: Any = None) -> Any:
        return act(x)

    for _ in range(2):
        apply(run.x, act=jax.nn.relu)


def own_mesh(run: Run) -> None:
    """A ring over all devices in a body whose argument lies on a mesh of two axes."""
    ring = jax.sharding.Mesh(np.asarray(run.rows.mesh.to_jax().devices).reshape(-1), ("ring",))
    count = ring.size
    spec = PartitionSpec("ring")

    def shift(block: Any) -> Any:
        return jax.lax.ppermute(block, "ring", [(i, (i + 1) % count) for i in range(count)])

    def body(x: Any) -> Any:
        return jax.shard_map(shift, mesh=ring, in_specs=spec, out_specs=spec)(x)

    values = np.arange(8 * count, dtype=np.float32).reshape(2 * count, 4)
    x = pr.device_put(values, run.rows)
    y = pr.compile(body, x, out_sharding=run.rows)(x)
    np.testing.assert_array_equal(y.gather(), np.roll(values, 2, axis=0))


def jax_jit(run: Run) -> None:
    """Programs of `jax.jit`, some on one process only: they need no other process."""
    rows = NamedSharding(run.rows.mesh.to_jax(), PartitionSpec("x"))
    x = jax.device_put(np.ones((8, 4), np.float32), rows)
    mean = jax.jit(lambda x: x.mean(), out_shardings=NamedSharding(rows.mesh, PartitionSpec()))(x)
    if pr.process_index() == 0:
        assert float(mean * 2) == 2.0
        assert float(jax.jit(lambda x: x + 1)(jnp.ones(4)).sum()) == 8.0
    assert float(jax.jit(lambda x: x.sum())(x)) == 32.0


PROGRAMS: dict[str, Callable[[Run], None]] = {
    "flax trains": flax_trains,
    "nnx trains": nnx_trains,
    "equinox trains": equinox_trains,
    "optax trains": optax_trains,
    "lambdas in a loop": loop,
    "equinox lambda": equinox_lambda,
    "program called": called,
    "own mesh": own_mesh,
    "jax.jit": jax_jit,
    "relu": use(jax.nn.relu),
    "lambda": use(lambda x: x + 1),
    "partial": use(functools.partial(power, n=3)),
    "frozenset": use(frozenset(("left", "right", "up", "down"))),
    "numpy scalar": use(np.float32(2.5)),
    "nan": use(float("nan")),
    "tuple of functions": use((jax.nn.relu, (np.tanh, len))),
    "dataclass of a function": use(Layer(jax.nn.gelu)),
    "object": use(Anonymous()),
    "file": use(Make(lambda: ("log", io.StringIO("x")))),
    "sharding": use(Make(lambda: pr.NamedSharding(pr.Mesh((4,), ("i",)), ("i",)))),
    "optimizer": use(Make(lambda: (optax.lamb(1e-3), optax.MultiSteps(optax.adam(1e-3), 2).init))),
    "Partial": pass_on(lambda x: jax.tree_util.Partial(jax.nn.relu, x)),
    "plain dataclass": pass_on(lambda x: Plain(x, jax.nn.relu)),
    "dataclass of flax": pass_on(lambda x: OfFlax(x, jax.nn.relu)),
    "node with a set": pass_on(lambda x: Node(x, jax.nn.relu)),
    "node with an object": pass_on(lambda x: Node(x, Anonymous())),
}


def main() -> None:
    pr.initialize("jax")
    run, said = Run(), dict[str, str | None]()
    for name, program in PROGRAMS.items():
        try:
            program(run)
            said[name] = None
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
    pr.shutdown()


if __name__ == "__main__":
    main()
