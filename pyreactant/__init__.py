"""One Python interface to multi-host XLA: sharded arrays on named meshes, by process.

Importing this loads no runtime; `initialize` does. Each name is loaded at its first use, so that
the supervisor, for instance, does not wait for NumPy.
"""

from .base import starting as _starting

if _starting.is_command():
    _starting.hide_interrupts()

from typing import TYPE_CHECKING

from ._version import __version__
from .arrays import process_runtime as _process_runtime
from .base.lazy import attach

if TYPE_CHECKING:
    from . import preferences as preferences
    from . import testing as testing
    from .arrays.array import ShardedArray as ShardedArray
    from .arrays.checkpoint.read import restore as restore
    from .arrays.checkpoint.steps import Checkpoints as Checkpoints
    from .arrays.checkpoint.write import save as save
    from .arrays.domain import Domain as Domain
    from .arrays.inputs import Integers as Integers
    from .arrays.inputs import Uniform as Uniform
    from .arrays.lowering.as_jax import as_jax as as_jax
    from .arrays.matmul import matmul_sharded as matmul_sharded
    from .arrays.mesh import Mesh as Mesh
    from .arrays.program import Program as Program
    from .arrays.program import program as program
    from .arrays.runtimes.compile import compile as compile
    from .arrays.runtimes.compiled import Compiled as Compiled
    from .arrays.runtimes.loop import reached_preemption as reached_preemption
    from .arrays.runtimes.loop import report as report
    from .arrays.runtimes.mesh import make_mesh as make_mesh
    from .arrays.runtimes.operations import device_put as device_put
    from .arrays.runtimes.operations import from_callback as from_callback
    from .arrays.runtimes.operations import from_jax as from_jax
    from .arrays.runtimes.operations import from_process_local as from_process_local
    from .arrays.runtimes.operations import gather as gather
    from .arrays.runtimes.operations import reshard as reshard
    from .arrays.runtimes.runtime import backend_name as backend_name
    from .arrays.runtimes.runtime import barrier as barrier
    from .arrays.runtimes.runtime import devices as devices
    from .arrays.runtimes.runtime import initialize as initialize
    from .arrays.runtimes.runtime import is_initialized as is_initialized
    from .arrays.runtimes.runtime import local_devices as local_devices
    from .arrays.runtimes.runtime import num_processes as num_processes
    from .arrays.runtimes.runtime import process_index as process_index
    from .arrays.runtimes.runtime import shutdown as shutdown
    from .arrays.sharding import Aval as Aval
    from .arrays.sharding import Device as Device
    from .arrays.sharding import NamedSharding as NamedSharding
    from .arrays.sharding import Shard as Shard
    from .base.errors import DeadlineError as DeadlineError
    from .base.errors import DTypeError as DTypeError
    from .base.errors import FileError as FileError
    from .base.errors import InvalidArgumentError as InvalidArgumentError
    from .base.errors import MismatchError as MismatchError
    from .base.errors import NotAddressableError as NotAddressableError
    from .base.errors import PyReactantError as PyReactantError
    from .base.errors import RemoteError as RemoteError
    from .base.errors import RendezvousError as RendezvousError
    from .base.errors import RequirementError as RequirementError
    from .base.errors import ShardingError as ShardingError
    from .base.errors import StateError as StateError
    from .base.slices.topology import topology as topology
    from .check.report.report import Report as Report
    from .check.run import crosscheck as crosscheck
    from .fit.plan.plan import plan as plan
    from .fit.plan.report import Plan as Plan
    from .fit.preflight.preflight import preflight as preflight
    from .fit.preflight.report import Preflight as Preflight
    from .process.supervised.metrics import log as log
    from .process.supervised.profiling import profile as profile
    from .runs import targets as targets
    from .runs.job import Job as Job
    from .runs.submit import remote as remote
    from .runs.submit import submit as submit


def _find_runtime() -> object:
    from .arrays.runtimes import for_data

    return for_data


_process_runtime.find = _find_runtime

_MODULES = {
    "arrays.array": "ShardedArray",
    "arrays.checkpoint.read": "restore",
    "arrays.checkpoint.steps": "Checkpoints",
    "arrays.checkpoint.write": "save",
    "arrays.domain": "Domain",
    "arrays.inputs": "Integers Uniform",
    "arrays.mesh": "Mesh",
    "arrays.program": "Program program",
    "arrays.sharding": "Aval Device NamedSharding Shard",
    "base.errors": "DeadlineError DTypeError FileError InvalidArgumentError MismatchError "
    "NotAddressableError PyReactantError RemoteError "
    "RendezvousError RequirementError ShardingError StateError",
    "arrays.lowering.as_jax": "as_jax",
    "arrays.matmul": "matmul_sharded",
    "arrays.runtimes.compiled": "Compiled",
    "arrays.runtimes.compile": "compile",
    "arrays.runtimes.mesh": "make_mesh",
    "arrays.runtimes.operations": "device_put from_callback from_jax from_process_local gather "
    "reshard",
    "arrays.runtimes.loop": "reached_preemption report",
    "arrays.runtimes.runtime": "backend_name barrier devices initialize is_initialized "
    "local_devices num_processes process_index shutdown",
    "process.supervised.profiling": "profile",
    "process.supervised.metrics": "log",
    "base.slices.topology": "topology",
    "check.report.report": "Report",
    "runs": "targets",
    "runs.job": "Job",
    "runs.submit": "remote submit",
    "fit.plan.plan": "plan",
    "fit.plan.report": "Plan",
    "fit.preflight.preflight": "preflight",
    "fit.preflight.report": "Preflight",
}
_MODULE_OF, __getattr__, __dir__ = attach(
    globals(), _MODULES, submodules="crosscheck preferences testing"
)
__all__ = [*_MODULE_OF, "__version__"]
