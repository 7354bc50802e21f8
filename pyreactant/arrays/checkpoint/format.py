"""Orbax's files as plain data, and the one file of ours beside them.

A step is a folder with one item, a folder such as ``state``. It holds ``_METADATA`` (the tree), a
zarr array for each leaf in an OCDBT database, ``_strings.json`` (text) and ``array_metadatas``
(types of PRNG keys). Orbax ignores our file, `DIGESTS`: with it, damage of the other files is seen.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...base.errors import FileError
from ..dtypes import EXTENDED
from ..sharding import Index
from ..tree import Keys

STRINGS = "_strings.json"
KEY_TYPES = "array_metadatas/process_0"
DIGESTS = "pyreactant.json"
TEMPORARY = ".orbax-checkpoint-tmp"
"""What Orbax's names of unfinished steps contain."""

VERSION = 1
_FORMAT = "pyreactant checkpoint"

ARRAY, SCALAR, STRING = "np.ndarray", "scalar", "string"
NUMBERS: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}
"""Types of Python's numbers, as Orbax stores them."""
_OF_ORBAX = {"jax.Array": ARRAY, "NamedTuple": "None"}  # how else Orbax calls them
_COMPLETE = "store_array_data_equal_to_fill_value"
EMPTY: dict[str, Any] = {"None": None, "Dict": {}, "List": [], "Tuple": ()}


def name_of(keys: Keys) -> str:
    """The name of a leaf's array in the database."""
    return ".".join(map(str, keys))


@dataclass(frozen=True, slots=True)
class Array:
    """A zarr array: global shape, name of the element type, and the shape of its chunks."""

    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * itemsize(self.dtype)

    def nbytes_of(self, index: Index) -> int:
        """Bytes of a block."""
        return math.prod(s.stop - s.start for s in index) * itemsize(self.dtype)


def itemsize(dtype: str) -> int:
    """Bytes of an element; 1 for a type that the project does not know."""
    if dtype in EXTENDED:
        return 2 if dtype == "bfloat16" else 1
    bits = "".join(c for c in dtype if c.isdigit())
    return max(1, int(bits or 8) // 8)


@dataclass(frozen=True, slots=True)
class Entry:
    """One leaf of a tree in a checkpoint.

    Attributes:
        keys: Where it is.
        kind: `ARRAY`, `SCALAR`, `STRING`, or Orbax's name of an empty container.
        key_impl: The implementation of an array of typed PRNG keys, whose numbers are stored.
    """

    keys: Keys
    kind: str
    key_impl: str | None = None

    @property
    def is_array(self) -> bool:
        """Whether it has an array in the database."""
        return self.kind in (ARRAY, SCALAR)

    @property
    def is_known(self) -> bool:
        """Whether it is of a kind that can be read; others are of Orbax's extensions."""
        return self.is_array or self.kind == STRING or self.kind in EMPTY


def kind_of_empty(value: Any) -> str | None:
    """Orbax's name of an empty container, or of None; None for anything else.

    An empty named tuple, such as `optax.EmptyState`, is None for Orbax.
    """
    if value is None or (isinstance(value, tuple) and hasattr(value, "_fields") and not value):
        return "None"
    if isinstance(value, (dict, list, tuple)) and not value:
        return {dict: "Dict", list: "List"}.get(type(value), "Tuple")
    return None


def nested(leaves: Sequence[tuple[Keys, Any]]) -> Any:
    """The tree of dictionaries and lists in which each value is where its keys say."""
    if len(leaves) == 1 and leaves[0][0] == ():
        return leaves[0][1]  # Orbax writes a single array, too
    root: dict[Any, Any] = {}
    sequences: list[tuple[dict[Any, Any], Any]] = []
    for keys, value in leaves:
        node = root
        for key, after in zip(keys, (*keys[1:], None), strict=True):
            if after is None:
                node[key] = value
            else:
                if key not in node:
                    node[key] = {}
                    if isinstance(after, int):
                        sequences.append((node, key))
                node = node[key]
    for parent, key in reversed(sequences):  # the inner ones first
        parent[key] = [parent[key][number] for number in sorted(parent[key])]
    top = leaves[0][0][0] if leaves else ""
    return [root[number] for number in sorted(root)] if isinstance(top, int) else root


def tree_text(entries: Sequence[Entry]) -> str:
    """The file `METADATA`."""
    tree = {
        str(tuple(map(str, entry.keys))): {
            "key_metadata": [
                {"key": str(key), "key_type": 1 if isinstance(key, int) else 2}
                for key in entry.keys
            ],
            "value_metadata": {"value_type": entry.kind, "skip_deserialize": entry.kind in EMPTY},
        }
        for entry in entries
    }
    return json.dumps(
        {
            "tree_metadata": tree,
            "use_ocdbt": True,
            "use_zarr3": True,
            _COMPLETE: True,
            "custom_metadata": None,
        }
    )


def key_types_text(arrays: Mapping[str, Array], impls: Mapping[str, str]) -> str:
    """The file `KEY_TYPES`, which has all arrays as Orbax expects it."""
    rows = [
        {
            "array_metadata": {
                "param_name": name,
                "write_shape": array.chunk,
                "chunk_shape": array.chunk,
                "ext_metadata": {"random_key_impl": impls[name]} if name in impls else None,
            }
        }
        for name, array in arrays.items()
    ]
    return json.dumps({"array_metadatas": rows})


def step_text(item: str, nanoseconds: int) -> str:
    """The file `_CHECKPOINT_METADATA` of a step."""
    handler = "orbax.checkpoint._src.handlers.standard_checkpoint_handler"
    return json.dumps(
        {
            "item_handlers": {item: f"{handler}.StandardCheckpointHandler"},
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": nanoseconds,
            "commit_timestamp_nsecs": nanoseconds,
            "custom_metadata": {},
        }
    )


def read_tree(
    text: str, key_types: Sequence[str], *, ocdbt: bool
) -> tuple[list[Entry], dict[str, bool]]:
    """The leaves in a checkpoint, and how their arrays are stored: the arguments of `Reader`.

    Older versions of Orbax left out chunks of zeros.

    Args:
        text: The file `METADATA`.
        key_types: The files `array_metadatas/process_*`.
        ocdbt: Whether there is a database, for a file that does not say.

    Raises:
        ValueError: The files are not Orbax's.
    """
    impls: dict[str, str] = {}
    try:
        for part in key_types:
            for row in json.loads(part)["array_metadatas"]:
                one = row["array_metadata"]
                if impl := (one.get("ext_metadata") or {}).get("random_key_impl"):
                    impls[one["param_name"]] = impl
        data = json.loads(text)
        entries = [
            _entry(row["key_metadata"], row["value_metadata"], impls)
            for row in data["tree_metadata"].values()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no entry {error}") from None
    said = data.get("use_ocdbt")
    return entries, {
        "ocdbt": ocdbt if said is None else bool(said),
        "zarr3": bool(data.get("use_zarr3")),
        "complete": bool(data.get(_COMPLETE)),
    }


def _entry(keys: Any, value: Any, impls: Mapping[str, str]) -> Entry:
    where: Keys = tuple(int(k["key"]) if k["key_type"] == 1 else str(k["key"]) for k in keys)
    kind = str(value["value_type"])
    return Entry(where, _OF_ORBAX.get(kind, kind), impls.get(name_of(where)))


def array_spec(array: Array) -> dict[str, Any]:
    """The zarr metadata of an array that we write: whole bytes with a checksum for each chunk."""
    return {
        "shape": list(array.shape),
        "data_type": array.dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(array.chunk)}},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
    }


@lru_cache(maxsize=1024)  # of thousands of arrays most have the same text
def read_array(text: bytes) -> Array:
    """An array from its ``zarr.json`` or ``.zarray``.

    Raises:
        ValueError: It is neither.
    """
    try:
        data = json.loads(text)
        if data["zarr_format"] == 3:
            dtype = data["data_type"]
            chunk = data["chunk_grid"]["configuration"]["chunk_shape"]
        else:
            dtype, chunk = _zarr2_dtype(data["dtype"]), data["chunks"]
        return Array(tuple(data["shape"]), str(dtype), tuple(chunk))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no entry {error}") from None


def _zarr2_dtype(name: str) -> str:
    kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
    if name[:1] not in "<>|":
        return name  # of ml_dtypes
    kind = kinds.get(name[1:2], name)
    return kind if kind == "bool" else f"{kind}{int(name[2:]) * 8}"


LARGEST_CHUNK = 64 * 2**20
_MOST_CUTS = 4
"""How many times as many chunks as needed a dimension may be cut into, to divide a block."""


def chunk_shape(
    shape: Sequence[int], block: Sequence[int], size: int, largest: int = LARGEST_CHUNK
) -> tuple[int, ...]:
    """The shape of an array's chunks: a block, cut along its first dimensions to `largest` bytes.

    Chunks divide a block, so that no two processes write one chunk. A dimension that would need
    far more cuts for that, such as a prime number, stays whole, and a chunk may then be larger.

    Args:
        shape: Global shape.
        block: Shape of the block that each device holds.
        size: Bytes of an element.
        largest: Bytes of a chunk.
    """
    chunk = [max(1, n) for n in block]
    for dimension, whole in enumerate(shape):
        need = -(-math.prod(chunk) * size // largest)
        if need <= 1:
            break
        length = chunk[dimension]
        if length == whole:  # no other block lies beside it: the last chunk may be shorter
            chunk[dimension] = -(-length // min(need, length))
        else:
            cuts = _divisor(length, min(need, length))
            if cuts <= _MOST_CUTS * need:
                chunk[dimension] = length // cuts
    return tuple(chunk)


def _divisor(number: int, least: int) -> int:
    """The smallest divisor of a number from `least` on."""
    root = math.isqrt(number)
    small = [i for i in range(1, root + 1) if number % i == 0]
    return min(d for i in small for d in (i, number // i) if d >= least)


def chunks(block: Index, chunk: Sequence[int]) -> Iterator[Index]:
    """The chunks of a block, row-major; the last one of a dimension may be shorter."""
    counts = [-(-(s.stop - s.start) // n) for s, n in zip(block, chunk, strict=True)]
    for place in itertools.product(*map(range, counts)):
        yield tuple(
            slice(s.start + i * n, min(s.start + (i + 1) * n, s.stop))
            for s, i, n in zip(block, place, chunk, strict=True)
        )


def within(index: Index, block: Index) -> Any:
    """Where in a block a part of it is; of arrays without dimensions it gives a view, too."""
    inside = (slice(s.start - b.start, s.stop - b.start) for s, b in zip(index, block, strict=True))
    return (*inside, ...)


def parts(block: Index, array: Array, largest: int = LARGEST_CHUNK) -> Iterator[Index]:
    """Cut a block between the chunks of its array, if possible into parts of `largest` bytes."""
    if array.nbytes_of(block) > largest:
        for dimension, (s, n) in enumerate(zip(block, array.chunk, strict=True)):
            first, last = s.start // n, (s.stop - 1) // n
            if first < last:
                middle = (first + last + 1) // 2 * n
                for half in (slice(s.start, middle), slice(middle, s.stop)):
                    part = (*block[:dimension], half, *block[dimension + 1 :])
                    yield from parts(part, array, largest)
                return
    yield block


def digest(data: bytes) -> str:
    """The digest of a file."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digests_text(files: Mapping[str, str], arrays: Mapping[str, str]) -> str:
    """Our file `DIGESTS`: digests of metadata files, and of the zarr metadata of each array."""
    body = {"format": _FORMAT, "version": VERSION, "files": dict(files), "arrays": dict(arrays)}
    return json.dumps({**body, "digest": _of_body(body)})


def _of_body(body: Mapping[str, Any]) -> str:
    return digest(json.dumps(body, sort_keys=True).encode())


def read_digests(data: bytes, where: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Our file: the digests by name of the file, and by name of the array.

    Raises:
        FileError: A newer version of pyreactant wrote it.
        ValueError: It is damaged.
    """
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError("no object")
    said = body.pop("digest", None)
    version = body.get("version")
    if said != _of_body(body) or body.get("format") != _FORMAT or not isinstance(version, int):
        raise ValueError("its own digest differs")
    if version > VERSION:
        raise FileError(
            f"{where}: the checkpoint has version {version} of the format, and this pyreactant "
            f"reads up to {VERSION}; install a newer pyreactant"
        )
    return body["files"], body["arrays"]
