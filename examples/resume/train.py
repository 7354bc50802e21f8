"""Training that goes on after it was killed or preempted, also with another number of processes."""

import hashlib
import sys

import jax
import jax.numpy as jnp
import optax

import pyreactant as pr

MODELS, WIDTH = 8, 16  # each device trains some models of an ensemble
OPTIMIZER = optax.adam(1e-2)


def start():
    """The first state."""
    w = jax.random.normal(jax.random.key(0), (MODELS, WIDTH, WIDTH)) / WIDTH**0.5
    return {"step": jnp.int32(0), "w": w, "optimizer": OPTIMIZER.init(w)}


def train(state):
    """One step; its data depend on its number alone."""
    key = jax.random.fold_in(jax.random.key(1), state["step"])
    x = jax.random.normal(key, (32, WIDTH))
    gradient = jax.grad(lambda w: ((jnp.tanh(x @ w) - x) ** 2).sum())(state["w"])
    updates, optimizer = OPTIMIZER.update(gradient, state["optimizer"])
    w = optax.apply_updates(state["w"], updates)
    return {"step": state["step"] + 1, "w": w, "optimizer": optimizer}


folder, steps = sys.argv[1], int(sys.argv[2])
mesh = pr.Mesh((-1,), ("models",))
models, whole = pr.NamedSharding(mesh, ("models",)), pr.NamedSharding(mesh, ())
with pr.Checkpoints(folder, keep=3, every_steps=10) as checkpoints:
    shapes = jax.eval_shape(start)
    shardings = jax.tree.map(lambda a: (models if a.ndim else whole).to_jax(), shapes)
    state = checkpoints.restore(shapes, shardings) or jax.jit(start, out_shardings=shardings)()
    step = jax.jit(train, out_shardings=shardings, donate_argnums=0)
    for number in range(int(state["step"]), steps):
        state = step(state)
        stop = pr.reached_preemption(number)
        checkpoints.save(number, state, now=stop or number == steps - 1)
        if stop:
            break
w = pr.gather(pr.from_jax(state["w"]))
if pr.process_index() == 0:
    print(f"step {int(state['step'])}: {hashlib.sha256(w.tobytes()).hexdigest()}")
