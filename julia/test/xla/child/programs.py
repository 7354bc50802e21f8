"""Programs: compiled from the text of an MLIR module, and executed."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from arrays import NUMBERS, assembled, copied, write_sharding
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import func
from objects import held, keep
from wire import Answer, Message


@dataclass
class Program:
    """A compiled module; its results lie on devices, in the order of its device assignment."""

    executable: Any
    devices: list[Any]
    results: list[tuple[tuple[int, ...], np.dtype[Any]]]
    result_shardings: list[Any]
    may_donate: list[bool]


def compile_module(message: Message, answer: Answer) -> None:
    client, text = held(message.number()), message.text()
    given = xla_client.CompileOptions.ParseFromString(bytes(message.bytes()))
    options, ids = _options(given)
    by_id = {device.id: device for device in client.devices()}
    devices = [by_id[n] for n in ids]
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        main = next(
            op
            for op in module.body.operations
            if isinstance(op, func.FuncOp) and op.name.value == "main"
        )
        results = [_result(ir.RankedTensorType(x)) for x in main.type.results]
        may_donate = [_may_donate(n, main) for n in range(len(main.arguments))]
        executable = client.compile_and_load(
            mlir.module_to_bytecode(module), xla_client.DeviceList(tuple(devices)), options
        )
    shardings = executable.get_output_shardings()
    if shardings is None:
        shardings = [xla_client.HloSharding.replicate()] * len(results)
    shardings = [_hlo(x) for x in shardings]
    program = Program(executable, devices, results, shardings, may_donate)
    answer.number(keep(program)).numbers(ids).number(len(results))
    for (shape, dtype), sharding in zip(results, shardings, strict=True):
        answer.number(NUMBERS[dtype]).numbers(list(shape))
        write_sharding(sharding, answer)


def execute(message: Message, answer: Answer) -> None:
    program: Program = held(message.number())
    arguments = [held(number) for number in message.numbers()]
    donatable = message.numbers()
    # The interface of jaxlib cannot forbid a donation that the module allows.
    given = [
        copied(x) if may and not asked else x
        for x, may, asked in zip(arguments, program.may_donate, donatable, strict=True)
    ]
    answers = program.executable.execute_sharded(given)
    answer.number(len(program.results))
    for (shape, dtype), sharding, parts in zip(
        program.results,
        program.result_shardings,
        answers.disassemble_into_single_device_arrays(),
        strict=True,
    ):
        answer.number(keep(_array(shape, dtype, program.devices, sharding, parts)))


def parameter_shardings(message: Message, answer: Answer) -> None:
    shardings = held(message.number()).executable.get_parameter_shardings() or []
    answer.number(len(shardings))
    for sharding in shardings:
        write_sharding(sharding, answer)


def hlo_text(message: Message, answer: Answer) -> None:
    modules = held(message.number()).executable.hlo_modules()
    answer.number(len(modules))
    for module in modules:
        answer.text(module.to_string())


def _options(given: Any) -> tuple[Any, list[int]]:
    """The options that decide about devices and sharding, and the devices' ids in order.

    Everything else stays as jax has it: the library hands out empty default options.
    """
    build = given.executable_build_options
    options = xla_client.CompileOptions()
    options.num_replicas = build.num_replicas
    options.num_partitions = build.num_partitions
    options.device_assignment = build.device_assignment
    ours = options.executable_build_options
    ours.num_replicas = build.num_replicas
    ours.num_partitions = build.num_partitions
    ours.device_assignment = build.device_assignment
    ours.use_spmd_partitioning = build.use_spmd_partitioning
    ours.use_shardy_partitioner = build.use_shardy_partitioner
    ours.allow_spmd_sharding_propagation_to_parameters = [False]
    ours.allow_spmd_sharding_propagation_to_output = [False]
    return options, _device_ids(build.device_assignment.serialize())


def _device_ids(assignment: bytes) -> list[int]:
    """The ids in a DeviceAssignmentProto of one replica, by partition."""
    ids = []
    for field, value in _fields(assignment):
        if field == 3:  # computation_devices
            for inner, packed in _fields(value):
                if inner == 1:  # replica_device_ids
                    ids.append(packed if isinstance(packed, int) else _varint(packed, 0)[0])
    return ids


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a message in Protocol Buffers' format that has only varints and bytes."""
    fields: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            fields.append((tag >> 3, data[at : at + value]))
            at += value
        else:
            fields.append((tag >> 3, value))
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def _result(type_: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    # Unsigned integers and 8-bit floats have names of their own in MLIR.
    name = str(type_.element_type)
    return tuple(type_.shape), _DTYPES[name]


def _may_donate(position: int, main: Any) -> bool:
    attributes = main.arg_attrs[position]
    return "tf.aliasing_output" in attributes or "jax.buffer_donor" in attributes


def _hlo(sharding: Any) -> Any:
    if isinstance(sharding, xla_client.OpSharding):
        return xla_client.HloSharding.from_proto(sharding)
    return sharding


def _array(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    devices: list[Any],
    sharding: Any,
    parts: list[jax.Array],
) -> jax.Array:
    return parts[0] if len(devices) == 1 else assembled(shape, dtype, devices, sharding, parts)


_DTYPES: dict[str, np.dtype[Any]] = {}


def _fill_dtypes() -> None:
    with mlir.make_ir_context():
        for dtype in NUMBERS:
            _DTYPES[str(mlir.dtype_to_ir_type(dtype))] = dtype


_fill_dtypes()

OPERATIONS = {
    "compile": compile_module,
    "execute": execute,
    "parameter_shardings": parameter_shardings,
    "hlo_text": hlo_text,
}
