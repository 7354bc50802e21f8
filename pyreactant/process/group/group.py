"""ProcessGroup: the processes of a run and the index of this one, and our variables that say so."""

import contextlib
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...base.errors import InvalidArgumentError, RequirementError
from ...base.settings import COORDINATOR, COUNT, INDEX, LOCAL_DEVICES


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The processes of a run, and which of them this is.

    Attributes:
        num_processes: The number of processes that run the program.
        process_index: The index of this process, from 0.
        coordinator_address: "host:port" of process 0; None for a single process.
        local_device_ids: GPUs of this machine that are this process's own; None for all
            that it can see.
        source: The resolver that decided: "arguments", "environment", "Pathways", "JobSet",
            "Slurm", "Open MPI", "PMIx", "Cloud TPU on GKE", "Cloud TPU metadata", a name of
            `plain.LAUNCHERS`, or "one process".
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


def loopback_address(port: int = 0) -> str:
    """An address of this machine for itself alone, with a free port if none is given."""
    import socket  # `import pyreactant` does not wait for it

    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.bind((host, 0))
            with socket.socket(family, socket.SOCK_DGRAM) as packets:
                packets.connect((host, 9))  # sends nothing; fails if the network is down
            return join_address(host, port or probe.getsockname()[1])
    raise RequirementError(
        "processes of one machine need its loopback network, but it has neither 127.0.0.1 nor ::1; "
        "run: ip link set lo up"
    )


def proxy_names(environ: Mapping[str, str]) -> list[str]:
    """The variables of web proxies that are set; their values may hold passwords."""
    names = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
    return [name for n in names for name in (n, n.upper()) if environ.get(name)]


def around_proxies(address: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What to set so that programs connect to an address without the web proxy.

    gRPC would send the rendezvous to the proxy, where it hangs. gRPC reads ``no_grpc_proxy``, and
    ``no_proxy`` only without that. Others prefer ``no_proxy`` to ``NO_PROXY``, so what the user has
    in one of these stays in the other.

    Args:
        address: "host:port" of the coordinator.
        environ: The environment, which may have such lists already.
    """
    host = address.rpartition(":")[0].strip("[]")
    if not proxy_names(environ) or not host:
        return {}
    names = ("no_proxy", "NO_PROXY", "no_grpc_proxy")
    lists = {"no_proxy": environ.get("NO_PROXY", "")}
    lists |= {name: environ[name] for name in names if name in environ}
    return {
        name: ",".join([*filter(None, hosts.split(",")), host])
        for name, hosts in lists.items()
        if host not in hosts.split(",")
    }


def port_of(run_id: str) -> int:
    """The coordinator's port of a run whose launcher gives none, from 61440 to 65535.

    It is above the ports that Linux gives to clients (net.ipv4.ip_local_port_range, up to
    60999). Two steps of a job, or a job before and after a requeue, have different ports, apart
    from a chance of 1 in 4096.
    """
    return 61440 + zlib.crc32(run_id.encode()) % 4096


def env_int(name: str, environ: Mapping[str, str] = os.environ) -> int | None:
    """A whole number from the environment; None if the variable is unset or empty.

    Raises:
        InvalidArgumentError: The value is not a whole number.
    """
    text = environ.get(name)
    if not text:
        return None
    try:
        return whole_number(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} must be a whole number, got {text!r:.80}") from None


MOST_PROCESSES = 1_000_000
"""Of a run: more than any machine has, few enough to list."""


def check_rank(count_name: str, count: int, index_name: str, index: int) -> None:
    """Check the number of processes and this one's index, by the names of their variables.

    Raises:
        InvalidArgumentError: There is no process, none with this index, or too many.
    """
    if count < 1:
        raise InvalidArgumentError(f"{count_name} must be 1 or more, got {count}")
    if count > MOST_PROCESSES:
        raise InvalidArgumentError(f"{count_name} must be at most {MOST_PROCESSES}, got {count}")
    if not 0 <= index < count:
        raise InvalidArgumentError(
            f"{index_name} must be from 0 to {count - 1} with {count_name}={count}, got {index}"
        )


def whole_number(text: str) -> int:
    """A whole number in plain digits: int() takes 2_0 as 20, too."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return int(text)


def required(name: str, environ: Mapping[str, str]) -> str:
    """The value of a variable that the launcher always sets.

    Raises:
        InvalidArgumentError: The variable is unset or empty.
    """
    text = environ.get(name)
    if not text:
        raise InvalidArgumentError(
            f"{name} must be set beside the launcher's other variables, but is not; pass the whole "
            f"environment on, or set {COUNT}, {INDEX} and {COORDINATOR} instead"
        )
    return text


def required_int(name: str, environ: Mapping[str, str]) -> int:
    """A whole number that the launcher always sets.

    Raises:
        InvalidArgumentError: The variable is unset, or its value is not a whole number.
    """
    required(name, environ)
    number = env_int(name, environ)
    assert number is not None
    return number


def local_devices(environ: Mapping[str, str], name: str = LOCAL_DEVICES) -> tuple[int, ...] | None:
    """The devices that a variable names.

    Raises:
        InvalidArgumentError: The value does not have the form 0,1.
    """
    text = environ.get(name)
    if not text:
        return None
    try:
        return tuple(whole_number(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgumentError(
            f"{name} must be whole numbers separated by commas, got {text!r}"
        ) from None


def check_jax_process_id(process: int, count: int, environ: Mapping[str, str]) -> None:
    """Check JAX_PROCESS_ID, if it is set, in a run of several slices.

    Kubeflow's trainer sets it to the pod's index within its slice (its issue 3537), so that it
    repeats in every slice.

    Raises:
        InvalidArgumentError: It is another process.
    """
    number = env_int("JAX_PROCESS_ID", environ)
    if number not in (None, process):
        raise InvalidArgumentError(
            f"this is process {process} of {count} in a run of several slices, but "
            f"JAX_PROCESS_ID={number}, which repeats in every slice if it is the index within the "
            f"slice; unset it, or set it to {process} here"
        )


def defined_variables(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables among `names` that are set, with their values."""
    return {name: environ[name] for name in names if name in environ}


def printable(value: str) -> str:
    """A variable's value with its control characters escaped: a terminal obeys them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def assignments(variables: Mapping[str, str]) -> str:
    """Variables with their values, for messages: "RANK=1, WORLD_SIZE=2"."""
    return ", ".join(f"{name}={printable(value)}" for name, value in variables.items())


class LaunchError(InvalidArgumentError):
    """The process was started in a way that cannot work; the error has the command that does.

    Attributes:
        problem: What is wrong, and what the command is for.
        command: The command to use, or the variable to set.
    """

    def __init__(self, problem: str, command: str):
        super().__init__(f"{problem}: {command}")
        self.problem, self.command = problem, command


class ShellError(LaunchError):
    """A shell of a job of several tasks: nothing runs alone there unless its user says how."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What one resolver concludes from the environment.

    Attributes:
        name: The resolver, which is the ``source`` of its group.
        reason: Why it applies or not, in a few words.
        evidence: The variables and other facts that it found, with their values.
        group: The process group; None if the resolver does not apply or the launch is wrong.
        error: What is wrong with the launch, to be raised.
        notes: What a user should know even though the launch works.
    """

    name: str
    reason: str
    evidence: Mapping[str, str] = field(default_factory=dict)
    group: ProcessGroup | None = None
    error: InvalidArgumentError | None = None
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether it decides, unless a resolver before it does."""
        return self.group is not None or self.error is not None
