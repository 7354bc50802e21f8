"""ProcessGroup: the processes of a run and the index of this one, as frozen data."""

import zlib
from dataclasses import dataclass

from .._errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The processes of a run, and which of them this is.

    Attributes:
        num_processes: The number of processes that run the program.
        process_index: The index of this process, from 0.
        coordinator_address: "host:port" of process 0; None for a single process.
        local_device_ids: GPUs of this machine that are this process's own; None for all
            that it can see.
        source: The resolver that decided: "arguments", "environment", "JobSet", "Slurm",
            "Open MPI", "PMIx", "Cloud TPU on GKE", "Cloud TPU metadata" or "one process".
        run_id: An identifier that all processes of this launch share and no other launch has,
            such as "slurm 123.4 restart 0"; None if the launcher has none.
        hosts: The host of each process, by index; None if the launcher does not give them.

    Raises:
        InvalidArgumentError: The values contradict each other.
    """

    num_processes: int = 1
    process_index: int = 0
    coordinator_address: str | None = None
    local_device_ids: tuple[int, ...] | None = None
    source: str = "one process"
    run_id: str | None = None
    hosts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_processes < 1:
            raise InvalidArgumentError(f"num_processes must be 1 or more, got {self.num_processes}")
        if not 0 <= self.process_index < self.num_processes:
            raise InvalidArgumentError(
                f"process_index must be from 0 to {self.num_processes - 1} with "
                f"num_processes={self.num_processes}, got {self.process_index}"
            )
        if self.num_processes > 1 and self.coordinator_address is None:
            raise InvalidArgumentError(
                f"num_processes={self.num_processes} needs coordinator_address='host:port' of "
                "process 0, the same on every process"
            )
        if self.coordinator_address is not None:
            split_address(self.coordinator_address)
        if self.local_device_ids is not None and (
            len(set(self.local_device_ids)) != len(self.local_device_ids)
            or any(i < 0 for i in self.local_device_ids)
        ):
            raise InvalidArgumentError(
                f"local_device_ids must be different numbers from 0, got {self.local_device_ids}"
            )
        if self.hosts is not None and (
            len(self.hosts) != self.num_processes or not all(self.hosts)
        ):
            raise InvalidArgumentError(
                f"hosts must name the host of each of {self.num_processes} processes, got "
                f"{self.hosts}"
            )


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[IPv6]:port".

    Raises:
        InvalidArgumentError: The address has another form.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    number = int(port) if port.isascii() and port.isdigit() else 0
    bare_ipv6 = ":" in host and not bracketed
    if not (colon and host and 0 < number < 65536) or bare_ipv6 or any(c.isspace() for c in host):
        raise InvalidArgumentError(
            f"coordinator_address must look like 'host:port' or '[IPv6]:port' with a port from 1 "
            f"to 65535, got {address!r}"
        )
    return host, number


def join_address(host: str, port: int) -> str:
    """A coordinator's address; an IPv6 host gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_of(run_id: str) -> int:
    """The coordinator's port of a run whose launcher gives none, from 61440 to 65535.

    It is above the ports that Linux gives to clients (net.ipv4.ip_local_port_range, up to
    60999). Two steps of a job, or a job before and after a requeue, have different ports, apart
    from a chance of 1 in 4096.
    """
    return 61440 + zlib.crc32(run_id.encode()) % 4096
