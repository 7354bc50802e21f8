"""One Python interface to multi-host XLA: sharded arrays on named meshes, by process.

Importing this loads no runtime; `initialize` does. The names below are loaded when first used,
so that what needs only a few of them, such as the supervisor, does not wait for NumPy.
"""

from typing import TYPE_CHECKING

from ._lazy import attach

if TYPE_CHECKING:
    from . import preferences as preferences
    from . import testing as testing
    from ._array import Device as Device
    from ._array import Shard as Shard
    from ._array import ShardedArray as ShardedArray
    from ._compiled import Compiled as Compiled
    from ._errors import DeadlineError as DeadlineError
    from ._errors import DTypeError as DTypeError
    from ._errors import FileError as FileError
    from ._errors import InvalidArgumentError as InvalidArgumentError
    from ._errors import MismatchError as MismatchError
    from ._errors import NotAddressableError as NotAddressableError
    from ._errors import PyReactantError as PyReactantError
    from ._errors import RendezvousError as RendezvousError
    from ._errors import RequirementError as RequirementError
    from ._errors import ShardingError as ShardingError
    from ._errors import StateError as StateError
    from ._matmul import matmul_sharded as matmul_sharded
    from ._mesh import Mesh as Mesh
    from ._operations import compile as compile
    from ._operations import device_put as device_put
    from ._operations import from_callback as from_callback
    from ._operations import from_process_local as from_process_local
    from ._preemption import reached_preemption as reached_preemption
    from ._program import Program as Program
    from ._runtime import backend_name as backend_name
    from ._runtime import barrier as barrier
    from ._runtime import devices as devices
    from ._runtime import initialize as initialize
    from ._runtime import is_initialized as is_initialized
    from ._runtime import local_devices as local_devices
    from ._runtime import num_processes as num_processes
    from ._runtime import process_index as process_index
    from ._runtime import shutdown as shutdown
    from ._sharding import NamedSharding as NamedSharding
    from .crosscheck._report import Report as Report
    from .crosscheck._run import crosscheck as crosscheck
    from .tpu._plan import plan as plan
    from .tpu._plan_report import Plan as Plan
    from .tpu._preflight import preflight as preflight
    from .tpu._preflight_report import Preflight as Preflight

__version__ = "0.1.0"

_MODULES = {
    "_array": "Device Shard ShardedArray",
    "_compiled": "Compiled",
    "_errors": "DeadlineError DTypeError FileError InvalidArgumentError MismatchError "
    "NotAddressableError PyReactantError RendezvousError RequirementError ShardingError StateError",
    "_matmul": "matmul_sharded",
    "_mesh": "Mesh",
    "_operations": "compile device_put from_callback from_process_local",
    "_preemption": "reached_preemption",
    "_program": "Program",
    "_runtime": "backend_name barrier devices initialize is_initialized local_devices "
    "num_processes process_index shutdown",
    "_sharding": "NamedSharding",
    "crosscheck._report": "Report",
    "tpu._plan": "plan",
    "tpu._plan_report": "Plan",
    "tpu._preflight": "preflight",
    "tpu._preflight_report": "Preflight",
}
_MODULE_OF, __getattr__, __dir__ = attach(
    globals(), _MODULES, submodules="crosscheck preferences testing"
)
__all__ = [*_MODULE_OF, "__version__"]
