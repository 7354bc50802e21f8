"""As Levanter starts: it asks JAX's own list of clusters whether it is distributed at all."""

import os

os.environ |= {  # a launcher that JAX knows, which says something else
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "elsewhere[1-9]",
    "SLURM_NTASKS": "9",
    "SLURM_PROCID": "8",
    "SLURM_LOCALID": "8",
    "SLURM_STEP_NUM_NODES": "9",
}

import jax
from jax._src import clusters
from jax._src.clusters import SlurmCluster
from jax.experimental import multihost_utils


class LevanterSlurmCluster(SlurmCluster):
    """Levanter has its own Slurm, for several GPUs per task."""


def is_distributed() -> bool:
    return any(env.is_env_present() for env in clusters.ClusterEnv._cluster_types)


if is_distributed():
    jax.distributed.initialize(None, None, None, None, initialization_timeout=30 * 60)
found = multihost_utils.process_allgather(jax.numpy.asarray(jax.process_index()))
print(f"levanter {jax.process_index()}/{jax.process_count()} gathered {found.tolist()}")
