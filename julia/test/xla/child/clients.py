"""Clients, their devices, and the distributed runtime that connects processes."""

import os
from typing import Any

from jax._src.lib import _jax, xla_client
from objects import held, keep
from wire import Answer, Message


def make_client(message: Message, answer: Answer) -> None:
    """A CPU client; with a distributed client its devices span all processes, over Gloo."""
    node, nodes, distributed = message.number(), message.number(), message.number()
    os.environ["XLA_FLAGS"] = message.text()  # XLA reads it at its first use
    options: dict[str, Any] = {"asynchronous": True, "node_id": node, "num_nodes": nodes}
    if distributed:
        connected = held(distributed)
        options["distributed_client"] = connected
        options["collectives"] = _jax.make_gloo_tcp_collectives(distributed_client=connected)
    client = xla_client.make_cpu_client(**options)
    answer.number(keep(client)).text(client.platform).number(client.process_index())
    devices = client.devices()
    answer.number(len(devices))
    local = set(client.local_devices())
    for device in devices:
        addressable = device in local
        answer.number(device.id).number(device.process_index).number(addressable)
        answer.number(device.local_hardware_id if addressable else -1)
        answer.text(device.device_kind)
        memories = device.addressable_memories() if addressable else []
        answer.text(device.default_memory().kind if addressable else "device")
        answer.number(len(memories))
        for memory in memories:
            answer.text(memory.kind)


def start_service(message: Message, answer: Answer) -> None:
    address, nodes, recoverable = message.text(), message.number(), message.number()
    times = _given("heartbeat_timeout", message.number())
    times |= _given("cluster_register_timeout", message.number())
    times |= _given("shutdown_timeout", message.number())
    service = _jax.get_distributed_runtime_service(
        address, nodes, recoverable=bool(recoverable), **times
    )
    answer.number(keep(service))


def make_distributed_client(message: Message, answer: Answer) -> None:
    address, node = message.text(), message.number()
    times = _given("rpc_timeout", message.number())
    times |= _given("init_timeout", message.number())
    times |= _given("shutdown_timeout", message.number())
    times |= _given("heartbeat_timeout", message.number())
    client = _jax.get_distributed_runtime_client(
        address,
        node,
        use_compression=bool(message.number()),
        shutdown_on_destruction=bool(message.number()),
        **times,
    )
    answer.number(keep(client))


def connect(message: Message, answer: Answer) -> None:
    held(message.number()).connect()


def shutdown(message: Message, answer: Answer) -> None:
    held(message.number()).shutdown()


def _given(name: str, seconds: int) -> dict[str, int]:
    """A time that Reactant sets, as an option; it is not positive if XLA's default holds."""
    return {name: seconds} if seconds > 0 else {}


OPERATIONS = {
    "make_client": make_client,
    "start_service": start_service,
    "make_distributed_client": make_distributed_client,
    "connect": connect,
    "shutdown": shutdown,
}
