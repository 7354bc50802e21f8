"""One Python interface to multi-host XLA: sharded arrays on named meshes, by process.

Importing this loads no runtime; `initialize` does. Each name is loaded at its first use, so that
the supervisor, for instance, does not wait for NumPy.
"""

from typing import TYPE_CHECKING

from ._lazy import attach
from ._version import __version__

if TYPE_CHECKING:
    from . import preferences as preferences
    from . import testing as testing
    from ._core.array import Aval as Aval
    from ._core.array import ShardedArray as ShardedArray
    from ._core.domain import Domain as Domain
    from ._core.mesh import Mesh as Mesh
    from ._core.program import Program as Program
    from ._core.program import program as program
    from ._core.sharding import Device as Device
    from ._core.sharding import NamedSharding as NamedSharding
    from ._core.sharding import Shard as Shard
    from ._errors import DeadlineError as DeadlineError
    from ._errors import DTypeError as DTypeError
    from ._errors import FileError as FileError
    from ._errors import InvalidArgumentError as InvalidArgumentError
    from ._errors import MismatchError as MismatchError
    from ._errors import NotAddressableError as NotAddressableError
    from ._errors import PyReactantError as PyReactantError
    from ._errors import RemoteError as RemoteError
    from ._errors import RendezvousError as RendezvousError
    from ._errors import RequirementError as RequirementError
    from ._errors import ShardingError as ShardingError
    from ._errors import StateError as StateError
    from ._lowering.as_jax import as_jax as as_jax
    from ._matmul.matmul import matmul_sharded as matmul_sharded
    from ._runtimes.compile import compile as compile
    from ._runtimes.compiled import Compiled as Compiled
    from ._runtimes.loop import reached_preemption as reached_preemption
    from ._runtimes.loop import report as report
    from ._runtimes.mesh import make_mesh as make_mesh
    from ._runtimes.operations import device_put as device_put
    from ._runtimes.operations import from_callback as from_callback
    from ._runtimes.operations import from_jax as from_jax
    from ._runtimes.operations import from_process_local as from_process_local
    from ._runtimes.operations import gather as gather
    from ._runtimes.operations import reshard as reshard
    from ._runtimes.runtime import backend_name as backend_name
    from ._runtimes.runtime import barrier as barrier
    from ._runtimes.runtime import devices as devices
    from ._runtimes.runtime import initialize as initialize
    from ._runtimes.runtime import is_initialized as is_initialized
    from ._runtimes.runtime import local_devices as local_devices
    from ._runtimes.runtime import num_processes as num_processes
    from ._runtimes.runtime import process_index as process_index
    from ._runtimes.runtime import shutdown as shutdown
    from ._supervised.metrics import log as log
    from .crosscheck._report.report import Report as Report
    from .crosscheck._run import crosscheck as crosscheck
    from .jobs import targets as targets
    from .jobs._job import Job as Job
    from .jobs._remote import remote as remote
    from .jobs._submit import submit as submit
    from .tpu._plan.plan import plan as plan
    from .tpu._plan.report import Plan as Plan
    from .tpu._preflight.preflight import preflight as preflight
    from .tpu._preflight.report import Preflight as Preflight

_MODULES = {
    "_core.array": "Aval ShardedArray",
    "_core.domain": "Domain",
    "_core.mesh": "Mesh",
    "_core.program": "Program program",
    "_core.sharding": "Device NamedSharding Shard",
    "_errors": "DeadlineError DTypeError FileError InvalidArgumentError MismatchError "
    "NotAddressableError PyReactantError RemoteError "
    "RendezvousError RequirementError ShardingError StateError",
    "_lowering.as_jax": "as_jax",
    "_matmul.matmul": "matmul_sharded",
    "_runtimes.compiled": "Compiled",
    "_runtimes.compile": "compile",
    "_runtimes.mesh": "make_mesh",
    "_runtimes.operations": "device_put from_callback from_jax from_process_local gather reshard",
    "_runtimes.loop": "reached_preemption report",
    "_runtimes.runtime": "backend_name barrier devices initialize is_initialized local_devices "
    "num_processes process_index shutdown",
    "_supervised.metrics": "log",
    "crosscheck._report.report": "Report",
    "jobs": "targets",
    "jobs._job": "Job",
    "jobs._remote": "remote",
    "jobs._submit": "submit",
    "tpu._plan.plan": "plan",
    "tpu._plan.report": "Plan",
    "tpu._preflight.preflight": "preflight",
    "tpu._preflight.report": "Preflight",
}
_MODULE_OF, __getattr__, __dir__ = attach(
    globals(), _MODULES, submodules="crosscheck preferences testing"
)
__all__ = [*_MODULE_OF, "__version__"]
