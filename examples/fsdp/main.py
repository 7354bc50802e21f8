"""Fully sharded training (FSDP) of a transformer block: weights and optimizer state are sharded."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import pyreactant as pr

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH, STEPS = 64, 32, 4, 16, 16, 8
OPTIMIZER = optax.adamw(3e-3)


def init(key):
    """Weights of a transformer block between an embedding and its inverse, and adamw's state."""
    shapes = {
        "embed": (VOCABULARY, WIDTH),
        "place": (LENGTH, WIDTH),
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    keys = jax.random.split(key, len(shapes))
    params = {
        name: jax.random.normal(k, shape) / jnp.sqrt(WIDTH)
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    params["scales"] = [jnp.ones(WIDTH), jnp.ones(WIDTH)]
    return params, OPTIMIZER.init(params)


def block(params, x):
    """Causal attention and a feed-forward layer, each on normalized values and added to x."""

    def norm(x, scale):
        return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale

    qkv = norm(x, params["scales"][0]) @ params["qkv"]
    q, k, v = jnp.split(qkv.reshape(*x.shape[:2], HEADS, -1), 3, axis=-1)
    attention = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + attention.reshape(x.shape) @ params["out"]
    return x + jax.nn.gelu(norm(x, params["scales"][1]) @ params["up"]) @ params["down"]


def loss(params, tokens):
    """The mean cross entropy of each next token."""
    x = block(params, params["embed"][tokens[:, :-1]] + params["place"])
    logits = x @ params["embed"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def step(params, state, tokens):
    """One step of adamw."""
    value, gradient = jax.value_and_grad(loss)(params, tokens)
    updates, state = OPTIMIZER.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value


def read(process, processes):
    """The sequences of one process: each counts up by a step of its own."""
    rng = np.random.default_rng(process)
    first, by = rng.integers(0, VOCABULARY, (2, BATCH // processes, 1), np.int32)
    return (first + by * np.arange(LENGTH + 1, dtype=np.int32)) % VOCABULARY


def start():
    """The compiled step and its arguments; every device holds an eighth of the weights."""
    mesh = pr.Mesh((-1,), ("fsdp",))
    rows, copied = pr.NamedSharding(mesh, ("fsdp",)), pr.NamedSharding(mesh, ())
    key = pr.device_put(jax.random.key(0), copied)
    described = jax.eval_shape(init, key)
    shardings = jax.tree.map(lambda a: rows if a.ndim == 2 else copied, described)
    params, state = pr.compile(init, key, out_sharding=shardings)(key)
    tokens = pr.from_process_local(read(pr.process_index(), pr.num_processes()), rows)
    outs = (*shardings, copied)
    compiled = pr.compile(step, params, state, tokens, out_sharding=outs, donate=(0, 1))
    return compiled, params, state, tokens


def main():
    """Train, and print the loss of each step."""
    step, params, state, tokens = start()
    for number in range(STEPS):
        params, state, value = step(params, state, tokens)
        if pr.process_index() == 0:
            print(f"step {number}: loss {float(value):.9g}")


if __name__ == "__main__":
    pr.initialize()
    main()
