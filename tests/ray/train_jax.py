"""Ray's own example of JaxTrainer, with pyreactant; `python train_jax.py STORAGE FACTS`.

Differences from the document: 5 epochs and not 100, random numbers of NumPy, which need no
compilation, CPU devices behind the pretended TPU, Ray's resources per worker given, and ``pr.log``
and ``pr.report`` in place of ``ray.train.report``, whose metrics come back as None unless a
checkpoint goes with them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.jax import JaxTrainer


def train_func(config: dict[str, Any]) -> None:
    """Runs on each worker."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    import pyreactant as pr

    facts: dict[str, Any] = {"mistakes": mistakes_before(pr)}
    pr.initialize()
    key = np.random.default_rng(pr.process_index())
    X = key.normal(size=(100, 1)).astype(np.float32)
    noise = key.normal(size=(100, 1)).astype(np.float32) * 0.1
    y = 2 * X + 1 + noise

    def linear_model(params: Any, x: Any) -> Any:
        return x @ params["w"] + params["b"]

    def loss_fn(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean((linear_model(params, x) - y) ** 2)

    optimizer = optax.adam(learning_rate=0.01)

    @jax.jit
    def train_step(params: Any, opt_state: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    w, b = key.normal(size=(1, 1)), key.normal(size=(1,))
    params = {"w": w.astype(np.float32), "b": b.astype(np.float32)}
    opt_state = optimizer.init(params)
    for epoch in range(5):
        params, opt_state, loss = train_step(params, opt_state, X, y)
        pr.log(epoch, loss=loss, epoch=epoch)
    folder = Path(config["facts"], f"checkpoint-{pr.process_index()}")
    folder.mkdir()
    (folder / f"params-{pr.process_index()}.json").write_text(str(params["w"].item()))

    mesh = pr.Mesh((-1,), ("x",))
    x = pr.device_put(jnp.arange(64.0), pr.NamedSharding(mesh, ("x",)))
    facts |= {
        "num_processes": pr.num_processes(),
        "process": pr.process_index(),
        "rank": ray.train.get_context().get_world_rank(),
        "sum": float(x.gather().sum()),
        "loss": float(loss),
        "before": pr.reached_preemption(5),
    }
    if pr.process_index() == 0:
        preempt()
    facts["after"] = pr.reached_preemption(6)
    try:  # one process has a wrong folder: all of them get the error, and none waits in Ray
        pr.report(5, checkpoint="absent" if pr.process_index() == 2 else folder)
    except pr.FileError as error:
        facts["mistakes"].append(str(error))
    for wrong in ({"loss": "mean"} if pr.process_index() else {}, {"absent": "max"}):
        try:
            pr.report(5, reduce=wrong)
        except pr.PyReactantError as error:
            facts["mistakes"].append(str(error))
    pr.report(5)
    pr.log(6, loss=loss, epoch=epoch, process=pr.process_index())
    pr.report(6, checkpoint=folder, reduce={"loss": "mean", "process": "max"})
    Path(config["facts"], f"{pr.process_index()}.json").write_text(json.dumps(facts))


def mistakes_before(pr: Any) -> list[str]:
    """What initialize refuses here."""
    found = []
    for arguments in ({"backend": "reactant"}, {"num_processes": 3, "process_index": 0}):
        try:
            pr.initialize(**arguments)
        except pr.PyReactantError as error:
            found.append(str(error))
    return found


def preempt() -> None:
    """As if Ray had heard that a node goes away."""
    from ray.train.v2._internal.execution.context import get_train_context
    from ray.train.v2.api.preemption import PreemptionInfo

    get_train_context().preemption_context.preemption_info = PreemptionInfo(None, {"node": [1]})


if __name__ == "__main__":
    storage, facts = sys.argv[1:3]
    ray.init(log_to_driver=False)
    scaling_config = ScalingConfig(
        num_workers=4,
        use_tpu=True,
        topology="4x4",
        accelerator_type="TPU-V6E",
        resources_per_worker={"TPU": 4, "CPU": 0},
    )
    trainer = JaxTrainer(
        train_loop_per_worker=train_func,
        train_loop_config={"facts": facts},
        scaling_config=scaling_config,
        run_config=RunConfig(storage_path=storage, name="unique_run_name"),
    )
    result = trainer.fit()
    assert result.metrics is not None
    assert result.checkpoint is not None
    print(json.dumps({"metrics": result.metrics, "checkpoint": result.checkpoint.path}))
    print(f"Training finished. Final loss: {result.metrics['loss']:.4f}")
