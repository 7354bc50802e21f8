"""Whether JAX's coordinator accepts only the processes of its run, and who else reaches it."""

import os
import re
from collections.abc import Mapping

from .._system.facts import package_version
from ._coordinator import bind_host
from ._group import ProcessGroup, split_address

MTLS = "PYREACTANT_MTLS"
"""The variable that switches mutual TLS off with 0."""
CERTIFICATE = "JAX_MTLS_CERT_FILE"
"""JAX's variable with this process's certificate."""

_FIRST = (0, 11, 2)  # jax with mutual TLS


def why_not(backend: str, environ: Mapping[str, str] = os.environ) -> str:
    """Why a supervised run has no mutual TLS of its own; "" if it has."""
    if environ.get(CERTIFICATE):
        return f"{CERTIFICATE} is set, and decides"
    if environ.get(MTLS) == "0":
        return f"{MTLS}=0"
    if lacking := without(backend):
        return lacking
    return "" if package_version("cryptography") else "cryptography is not installed"


def without(backend: str) -> str:
    """Why the runtime has no mutual TLS, whatever the settings; "" if it has."""
    if backend == "reactant":
        return "Reactant's coordinator has none"
    version = package_version("jax")
    if version is None:
        return "jax is not installed"
    # Not by `packaging`, for which every supervisor would wait 15 ms.
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < _FIRST:
        return f"jax {version} has none, jax {'.'.join(map(str, _FIRST))} does"
    return ""


def coordinator_note(group: ProcessGroup, environ: Mapping[str, str] = os.environ) -> str:
    """Who can reach the coordinator of a run, in one sentence; "" for one process."""
    if group.coordinator_address is None or group.num_processes == 1:
        return ""
    why = why_not(environ.get("PYREACTANT_BACKEND") or "jax", environ)
    if environ.get(CERTIFICATE):
        return f"mutual TLS: the coordinator accepts processes with a certificate ({CERTIFICATE})"
    where, port = split_address(group.coordinator_address)
    if group.process_index == 0:
        where = bind_host(group.coordinator_address) or "every network of this machine"
    open_ = (
        f"the coordinator listens on {where}, port {port}, and whoever reaches it can end the run"
    )
    if why:
        return f"no mutual TLS ({why}): {open_}"
    return f"mutual TLS under pyreactant run; without a supervisor {open_}"
