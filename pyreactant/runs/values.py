"""Trees of arrays and plain values in a folder: ``tree.json`` and one ``N.npy`` for each array.

Nothing is pickled. dict, list, tuple, None, bool, int, float, complex and str come back with the
same type and value, arrays and NumPy scalars with the same dtype; arrays of JAX come back as NumPy
arrays. The .npy files have no checksums: writing costs what copying them costs, and large ones are
mapped into memory, so that they are read once they are used.
"""

import json
import math
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import FileError, InvalidArgumentError, RequirementError
from ..base.files import pack, unpack
from .record import private_file, private_folder, written

if TYPE_CHECKING:
    from ..base.storage import Folder

Gather = Callable[[Any], Any]
"""Makes a NumPy array of an array that lies on devices."""

_PLAIN = "dict, list, tuple, None, bool, int, float, complex, str and arrays"
_SAFE = 1 << 53
"""Whole numbers below this are the same in every reader of JSON."""

_DEEPEST = 200
"""How deep values may be nested."""

_NATIVE = "biufcSUMm"
"""Kinds of NumPy's own dtypes that .npy files hold without pickle."""

_MAPPED = 1 << 20
"""Bytes from which on an array is mapped; below, a mapping costs more than reading."""

_LOCAL = frozenset({"bcachefs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems on which a mapped file outlives its deletion by any machine."""


class Encoder:
    """Encodes one tree; `arrays` are then the arrays to write, by number.

    Args:
        what: What the tree is, for messages, such as "the argument".
        gather: Called, in the order of the tree, with each array that lies on devices.
    """

    def __init__(self, what: str, gather: Gather | None = None) -> None:
        self.arrays: list[Any] = []
        self._what, self._gather = what, gather or local_array
        self._above: set[int] = set()

    def encode(self, value: Any, path: str = "") -> Any:
        """The tree as JSON.

        Raises:
            InvalidArgumentError: A part cannot travel; the message has its path and what to do.
        """
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if abs(value) < _SAFE else {"$int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if kind is complex:
            return {"$complex": [self.encode(value.real), self.encode(value.imag)]}
        if kind in (list, tuple, dict):
            return self._container(value, path)
        return self._array(value, path)

    def _container(self, value: Any, path: str) -> Any:
        if id(value) in self._above:
            raise self._refused(path, "it contains itself")
        if len(self._above) > _DEEPEST:
            raise self._refused(path, f"it is nested more than {_DEEPEST} deep")
        self._above.add(id(value))
        try:
            if type(value) is not dict:
                items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
                return items if type(value) is list else {"$tuple": items}
            pairs = [
                [self._key(key, path), self.encode(item, f"{path}[{key!r}]")]
                for key, item in value.items()
            ]
        finally:
            self._above.discard(id(value))
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        return {"$dict": pairs}

    def _key(self, key: Any, path: str, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise self._refused(path, f"a key is nested more than {_DEEPEST} deep")
        if type(key) is tuple:
            return {"$tuple": [self._key(part, path, depth + 1) for part in key]}
        if key is None or type(key) in (str, bool, int, float):
            return self.encode(key)
        raise self._refused(
            path,
            f"the type of a key is {_name(key)}; keys are str, int, float, bool, None or tuples of "
            "them",
        )

    def _array(self, value: Any, path: str) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            raise self._no_type(value, path)
        scalar = isinstance(value, numpy.generic)
        if scalar:
            value = numpy.asarray(value)
        elif is_on_devices(value):
            try:
                value = self._gather(value)
            except TypeError as error:  # a key of jax.random, or an array that jit traces
                raise self._refused(path, str(error).partition("\n")[0]) from None
        elif type(value) not in (numpy.ndarray, numpy.memmap):
            if isinstance(value, numpy.ma.MaskedArray):
                raise self._refused(path, "the mask of a masked array is lost; use x.filled(...)")
            if isinstance(value, numpy.ndarray):
                raise self._refused(path, f"its type is {_name(value)}; pass numpy.array(x)")
            raise self._no_type(value, path)
        entry: dict[str, Any] = {"$array": len(self.arrays)}
        dtype = value.dtype
        if dtype.type.__module__.partition(".")[0] == "ml_dtypes":  # such as bfloat16
            entry["dtype"] = dtype.name
            value = value.view(f"uint{8 * dtype.itemsize}")
        elif dtype.hasobject:
            raise self._refused(
                path, f"an array of dtype {dtype} needs pickle; convert it to numbers"
            )
        elif dtype.names:
            advice = "pass its fields, {name: x[name] for name in x.dtype.names}"
            raise self._refused(path, f"its dtype {dtype} has fields; {advice}")
        elif dtype.kind not in _NATIVE:
            raise self._refused(path, f"arrays of dtype {dtype} do not travel; convert it")
        self.arrays.append(value)
        return {**entry, "scalar": True} if scalar else entry

    def _no_type(self, value: Any, path: str) -> InvalidArgumentError:
        advice = f"pass {_PLAIN}"
        if isinstance(value, tuple):
            advice = "a namedtuple would come back as a tuple; pass x._asdict()"
        elif hasattr(type(value), "__dataclass_fields__"):
            advice = "pass dataclasses.asdict(x)"
        elif isinstance(value, (set, frozenset)):
            advice = "pass sorted(x)"
        elif isinstance(value, (bytes, bytearray)):
            advice = "pass numpy.frombuffer(x, numpy.uint8)"
        elif isinstance(value, Coroutine):
            advice = "an async function must be run: return asyncio.run(...)"
        elif isinstance(value, os.PathLike):
            advice = "pass str(x)"
        elif isinstance(value, (Iterator, range)):
            advice = "pass list(x)"
        elif callable(value):
            advice = "a function travels by its name: import it where the job runs"
        elif isinstance(value, (dict, list, int, float, str)):
            base = next(k for k in (dict, list, int, float, str) if isinstance(value, k))
            advice = f"pass {base.__name__}(x)"
        return self._refused(path, f"its type is {_name(value)}; {advice}")

    def _refused(self, path: str, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._what}{path} cannot travel: {why}")


def write(folder: Path, tree: Any, arrays: list[Any]) -> None:
    """Write a tree into a new folder, which appears when it is whole.

    Args:
        folder: The folder; what is there is replaced.
        tree: The tree, encoded.
        arrays: Its arrays; an `Encoder` makes both.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    private_folder(partial)
    try:
        for number, array in enumerate(arrays):
            _write_array(partial / f"{number}.npy", array)
        with private_file(partial / "tree.json") as file:
            file.write(json.dumps({"arrays": len(arrays), "tree": tree}).encode())
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def read(folder: Path) -> Any:
    """The tree in a folder.

    Raises:
        FileError: The folder is damaged or not there.
    """
    try:
        stored = json.loads((folder / "tree.json").read_bytes())
        tree, count = stored["tree"], int(stored["arrays"])
        arrays = [_read_array(folder / f"{number}.npy") for number in range(count)]
        return decode(tree, arrays)
    except FileNotFoundError as error:
        raise FileError(f"there is no {error.filename}: the value is absent or cut short") from None
    except _DAMAGED as error:
        raise FileError(f"the value in {folder} is damaged ({error})") from None


_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What reading a file of another content raises."""


def store(folder: Path, into: "Folder") -> None:
    """Write a tree's folder to Cloud Storage as one object, in place of what is there.

    Raises:
        PyReactantError: As `Folder.put`.
    """
    with tempfile.TemporaryFile(dir=folder.parent) as content:
        with tarfile.open(fileobj=content, mode="w") as archive:
            pack({folder.name: folder}, archive)
        into.delete()  # an attempt that was preempted may have written another value
        into.put(content)


def fetch_stored(folder: Path, stored: "Folder") -> None:
    """Bring back what `store` has written.

    Raises:
        RequirementError: There is nothing, or it does not fit on the disk.
        PyReactantError: As `Folder.get`.
    """
    if not (names := stored.names()):
        raise RequirementError(f"there is no value in {stored}; submit the job again")
    partial = folder.with_name(".fetched")
    shutil.rmtree(partial, ignore_errors=True)
    with written(folder.parent):
        private_folder(partial)
        try:
            with tempfile.TemporaryFile(dir=partial) as content:
                stored.get(names[0], content)
                with tarfile.open(fileobj=content) as archive:
                    unpack(archive, partial)
            (partial / folder.name).rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def is_on_devices(value: Any) -> bool:
    """Whether a value is an array of JAX or of pyreactant."""
    named = (("jax", "Array"), ("pyreactant.arrays.array", "ShardedArray"))
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in named)
    return any(kind is not None and isinstance(value, kind) for kind in kinds)


def local_array(value: Any) -> Any:
    """The NumPy array of an array on devices that this process reaches.

    Raises:
        InvalidArgumentError: It lies partly on devices of other processes.
    """
    import numpy

    if not getattr(value, "is_fully_addressable", True):
        raise InvalidArgumentError(
            "an array that lies partly on other processes cannot be an argument; gather it first"
        )
    return numpy.asarray(value.gather() if hasattr(value, "gather") else value)


def _write_array(path: Path, array: Any) -> None:
    from numpy.lib import format as npy

    with private_file(path) as file:
        if array.flags.c_contiguous and not array.dtype.hasobject:
            npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(array))
            file.flush()
            # One write of the whole array: numpy.save copies it in parts of 16 MiB.
            file.write(memoryview(array.reshape(-1).view("uint8")) if array.size else b"")
        else:
            npy.write_array(file, array, allow_pickle=False)


def _read_array(path: Path) -> Any:
    """An array of its own: changing it does not change the file."""
    import numpy

    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = size >= _MAPPED and _is_local(file.fileno())
    # "c" maps private pages: the kernel copies one when the user writes to it.
    return numpy.asarray(numpy.load(path, mmap_mode="c" if mapped else None, allow_pickle=False))


def _is_local(descriptor: int) -> bool:
    """Whether a file's disk is known to be this machine's; others may cut a mapped file short."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = {
        line.partition(" - ")[2].split(" ", 1)[0]
        for line in mounts
        if line.split(" ", 3)[2] == wanted
    }
    return bool(kinds) and kinds <= _LOCAL


def decode(tree: Any, arrays: list[Any]) -> Any:
    """The tree that an `Encoder` encoded.

    Raises:
        ValueError, TypeError, KeyError, IndexError: It is damaged.
    """
    if isinstance(tree, list):
        return [decode(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    mark = next((key for key in tree if key.startswith("$")), None)
    if mark is None:
        return {key: decode(item, arrays) for key, item in tree.items()}
    content = tree[mark]
    if mark == "$array":
        return _array_of(tree, arrays[content])
    if mark == "$tuple":
        return tuple(decode(item, arrays) for item in content)
    if mark == "$dict":
        return {decode(key, arrays): decode(item, arrays) for key, item in content}
    if mark == "$int":
        return int(content, 16)
    if mark == "$float":
        return float(content)
    if mark == "$complex":
        return complex(*(decode(part, arrays) for part in content))
    raise ValueError(f"unknown mark {mark}")


def _array_of(entry: dict[str, Any], array: Any) -> Any:
    if "dtype" in entry:
        import ml_dtypes

        array = array.view(getattr(ml_dtypes, entry["dtype"]))
    return array[()] if entry.get("scalar") else array


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
