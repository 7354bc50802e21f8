"""One Python interface to multi-host XLA: sharded arrays on named meshes, by process.

Importing this loads no runtime; `initialize` does.
"""

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

__version__ = "0.1.0"
