"""What a host says of itself, with stand-ins for NVML and for dcgmi: no GPU is here."""

import contextlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pyreactant.check.burnin.certificate import certify
from pyreactant.check.burnin.host import Gpus, quoted, resources, segments
from pyreactant.check.burnin.record import Measure
from pyreactant.check.burnin.verdict import Finding, State, judge

from .records import alone, member, record


class NoNvmlError(Exception):
    """As pynvml.NVMLError."""


class Nvml(ModuleType):
    """A stand-in for pynvml with two GPUs: what the test says of each, by its number."""

    NVMLError = NoNvmlError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    nvmlEventTypeXidCriticalError = 8

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.ecc: dict[int, int] = {0: 3, 1: 0}
        self.xids: list[tuple[int, int]] = []
        self.running: list[SimpleNamespace] = []
        self.may_read = True

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        if number not in self.ecc:
            raise NoNvmlError
        return number

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return {"GPU-b": 1}[name]

    def nvmlEventSetCreate(self) -> list[int]:
        return []

    def nvmlDeviceRegisterEvents(self, handle: int, kind: int, events: list[int]) -> None:
        if not self.may_read:
            raise NoNvmlError
        events.append(handle)

    def nvmlEventSetWait(self, events: list[int], milliseconds: int) -> SimpleNamespace:
        for number, (handle, xid) in enumerate(self.xids):
            if handle in events:
                del self.xids[number]
                return SimpleNamespace(eventData=xid)
        raise NoNvmlError

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> int:
        if not self.may_read:
            raise NoNvmlError
        return self.ecc[handle]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return self.running

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=100)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    made = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def findings(measures: list[Measure]) -> dict[int | None, Finding]:
    return {f.device: f for f in judge(record(measures, processes=2)) if f.device is not None}


def test_errors_that_counters_gain_are_a_failure(nvml: Nvml) -> None:
    gpus = Gpus([4, 5])
    assert [*gpus.new_errors()] == [(4, ""), (5, "")]  # 3 errors were there before
    nvml.ecc[1] = 2
    nvml.xids = [(0, 79), (1, 48), (1, 63)]
    said = dict(gpus.new_errors())
    assert said == {4: "Xid 79", 5: "2 uncorrectable ECC errors, Xid 48, Xid 63"}
    assert [*gpus.new_errors()] == [(4, ""), (5, "")]
    wrong = alone(1, "counters of the hardware", checked=2, wrong=1, where=said[5], seconds=())
    right = alone(0, "counters of the hardware", checked=2, seconds=())
    found = findings([right, wrong])
    assert (found[0].state, found[1].state) == (State.PASSED, State.FAILED)
    assert "(2 uncorrectable ECC errors, Xid 48, Xid 63)" in found[1].reasons[0]
    unseen = certify(record([right, wrong], processes=2), "").unseen
    assert "counters of the hardware (ECC, Xid)" not in unseen


def test_without_a_right_to_read_them_they_are_not_tested(nvml: Nvml) -> None:
    nvml.may_read = False
    assert [*Gpus([0, 1]).new_errors()] == []
    assert "counters of the hardware (ECC, Xid)" in certify(record([alone(0)]), "").unseen


def test_without_the_package_they_are_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = Gpus([0])
    assert [*gpus.new_errors()] == []
    assert gpus.others(0) == ""


def test_visible_devices_are_taken_in_their_order(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b, 7")
    gpus = Gpus([0, 1])
    nvml.ecc[1] = 1
    assert [*gpus.new_errors()] == [(0, "1 uncorrectable ECC error")]  # there is no GPU 7


def test_a_device_that_others_use_is_named_with_them(nvml: Nvml) -> None:
    mine = SimpleNamespace(pid=os.getpid(), usedGpuMemory=40)
    other = SimpleNamespace(pid=os.getppid(), usedGpuMemory=43)
    nvml.running = [mine, other, SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None)]
    name = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    said = Gpus([0]).others(0)
    assert said == (
        f"43% of its memory, processes {os.getppid()} ({name}), "
        f"{2**22 + 1} (of another user or container)"
    )
    used = member(0, [0])
    used = type(used).from_dict(used.to_dict() | {"devices": [{**used.devices[0], "others": said}]})
    (found, *_) = judge(record([alone(0)], members=(used,)))
    assert (found.state, found.reasons) == (State.SUSPICIOUS, (f"in use by others: {said}",))
    nvml.running = [mine]
    assert Gpus([0]).others(0) == ""


def test_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for node in ("node0", "node1", "possible"):
        (tmp_path / "sys/devices/system/node" / node).mkdir(parents=True)
    found = resources(tmp_path)
    assert found["NUMA nodes"] == 2
    assert found["free memory"] > 0
    assert found["free disk"] > 0


def test_segments_of_connections_are_counted() -> None:
    """On loopback none is lost, and a socket that is no TCP connection is none."""
    before = segments()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.create_connection(server.getsockname()))
        receiver = stack.enter_context(server.accept()[0])
        for other in socket.socketpair():
            stack.enter_context(other)
        sender.sendall(b"1")
        assert receiver.recv(1) == b"1"
        sent, lost = segments()
        assert os.get_blocking(receiver.fileno())  # looked at, and left as it was
    assert (sent - before[0], lost - before[1]) == (1, 0)


def test_a_disk_at_its_end_is_suspicious() -> None:
    full = type(member(0, [0])).from_dict(
        member(0, [0]).to_dict()
        | {"resources": {"NUMA nodes": 1, "free memory": 2**36, "free disk": 2**20}}
    )
    _, process = judge(record([alone(0)], members=(full,)))
    assert (process.state, process.reasons) == (State.SUSPICIOUS, ("free disk: only 1 MiB",))


@pytest.fixture
def dcgmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a stand-in for dcgmi before all on PATH."""

    def put(lines: str) -> None:
        tool = tmp_path / "dcgmi"
        tool.write_text(f"#!/bin/sh\n{lines}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


def test_a_tool_is_quoted(dcgmi: Callable[[str], None]) -> None:
    dcgmi('echo "stand-in for dcgmi: $*"; echo Fail >&2; exit 3')
    said = quoted()
    assert said == {"exit_code": 3, "output": "stand-in for dcgmi: diag -r 1\nFail"}
    assert said is not None
    made = certify(record([alone(0)], quotes=({"host": "n0", **said},)), "")
    assert made.exit_code == 0  # it is quoted, and decides nothing
    text = " ".join(made.to_text(200).split())
    assert "dcgmi diag -r 1: host n0: ended with 3: stand-in for dcgmi: diag -r 1 Fail" in text
    assert "stand-in for dcgmi" in made.to_html()


def test_a_tool_that_is_absent_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert quoted() is None
