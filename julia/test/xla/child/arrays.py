"""Arrays and their shardings."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax._src.core import ShapedArray
from jax._src.lib import _jax, xla_client
from jax._src.sharding_impls import GSPMDSharding
from objects import held, keep
from wire import Answer, Message

# By their numbers in xla_data.proto, which are also those of IFRT.
DTYPES = {
    1: np.dtype(np.bool_),
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.uint8),
    7: np.dtype(np.uint16),
    8: np.dtype(np.uint32),
    9: np.dtype(np.uint64),
    10: np.dtype(np.float16),
    11: np.dtype(np.float32),
    12: np.dtype(np.float64),
    15: np.dtype(np.complex64),
    16: np.dtype(ml_dtypes.bfloat16),
    18: np.dtype(np.complex128),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e4m3fn),
    23: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    24: np.dtype(ml_dtypes.float8_e5m2fnuz),
    25: np.dtype(ml_dtypes.float8_e4m3fnuz),
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}

# As in xla_data.proto.
REPLICATED, MAXIMAL, TILED = 0, 1, 3
KINDS = {
    REPLICATED: xla_client.OpSharding.Type.REPLICATED,
    MAXIMAL: xla_client.OpSharding.Type.MAXIMAL,
    TILED: xla_client.OpSharding.Type.OTHER,
}


def read_sharding(message: Message) -> Any:
    """An HloSharding of XLA."""
    sharding = xla_client.OpSharding()
    sharding.type = KINDS[message.number()]
    sharding.replicate_on_last_tile_dim = bool(message.number())
    sharding.tile_assignment_dimensions = message.numbers()
    sharding.tile_assignment_devices = message.numbers()
    return xla_client.HloSharding.from_proto(sharding)


def write_sharding(sharding: Any, answer: Answer) -> None:
    """An HloSharding or OpSharding of XLA, with its devices listed."""
    if isinstance(sharding, xla_client.OpSharding):
        sharding = xla_client.HloSharding.from_proto(sharding)
    sharding = xla_client.HloSharding.v3_to_v2_sharding(sharding)
    if sharding.is_replicated():
        answer.number(REPLICATED).number(0).numbers([]).numbers([])
    elif sharding.is_maximal() or sharding.is_tiled():
        answer.number(MAXIMAL if sharding.is_maximal() else TILED)
        answer.number(sharding.replicate_on_last_tile_dim())
        answer.numbers(list(sharding.tile_assignment_dimensions()))
        answer.numbers(list(sharding.tile_assignment_devices()))
    else:
        raise ValueError(f"a sharding that this library does not know: {sharding}")


def devices_of(client: Any, ids: list[int]) -> list[Any]:
    by_id = {device.id: device for device in client.devices()}
    return [by_id[n] for n in ids]


def assembled(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    devices: list[Any],
    sharding: Any,
    parts: list[jax.Array],
) -> jax.Array:
    """One array; parts are on the addressable devices, in the order of devices."""
    return _jax.ArrayImpl(
        ShapedArray(shape, dtype),
        GSPMDSharding(tuple(devices), sharding),
        parts,
        committed=True,
        _skip_checks=True,
    )


def on_device(block: np.ndarray, device: Any) -> jax.Array:
    """A copy of the block on the device."""
    array: jax.Array = _jax.batched_device_put(
        ShapedArray(block.shape, block.dtype),
        jax.sharding.SingleDeviceSharding(device),
        [block],
        [device],
        force_copy=True,
        host_buffer_semantics=_jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
        enable_x64=True,
    )
    return array


def copied(array: jax.Array) -> jax.Array:
    """An array with buffers of its own."""
    parts = [on_device(np.asarray(part), part.device) for part in array._arrays]
    if len(array.sharding.device_set) == 1:
        return parts[0]
    return _jax.ArrayImpl(array.aval, array.sharding, parts, committed=True, _skip_checks=True)


def put(message: Message, answer: Answer) -> None:
    client, dtype, shape = held(message.number()), DTYPES[message.number()], message.numbers()
    (device,) = devices_of(client, [message.number()])
    block = np.frombuffer(message.bytes(), dtype).reshape(shape)
    answer.number(keep(on_device(block, device)))


def assemble(message: Message, answer: Answer) -> None:
    client, dtype, shape = held(message.number()), DTYPES[message.number()], message.numbers()
    devices = devices_of(client, message.numbers())
    sharding = read_sharding(message)
    parts = [held(number) for number in message.numbers()]
    answer.number(keep(assembled(tuple(shape), dtype, devices, sharding, parts)))


def disassemble(message: Message, answer: Answer) -> None:
    parts = held(message.number())._arrays
    answer.number(len(parts))
    for part in parts:
        answer.number(keep(part)).number(part.device.id).numbers(list(part.shape))


def fetch(message: Message, answer: Answer) -> None:
    """The elements of an array that lies whole on each of its devices."""
    block = np.ascontiguousarray(np.asarray(held(message.number())._arrays[0]))
    answer.bytes(block.tobytes())


def copy(message: Message, answer: Answer) -> None:
    answer.number(keep(copied(held(message.number()))))


def wait(message: Message, answer: Answer) -> None:
    for number in message.numbers():
        array = held(number)
        if not array.is_deleted():
            array.block_until_ready()


OPERATIONS = {
    "put": put,
    "assemble": assemble,
    "disassemble": disassemble,
    "fetch": fetch,
    "copy": copy,
    "wait": wait,
}
