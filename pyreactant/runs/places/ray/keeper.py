"""What runs on a Ray cluster: the keeper of a job, and its part on each host. Both are actors.

The cluster need not have pyreactant. Ray carries this module there as code, so it needs nothing but
Python, and Ray where a method runs. The package, the user's code and the arguments come in the
job's archive. Actors get and give text and bytes only.
"""

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_TICK = 0.25
_UNBEGUN = 120.0
"""Seconds within which the submitting process must hand over the whole job."""
_AFTER_FIRST = 15.0
"""Seconds for the other supervisors to end after the first one."""
_CANCELLED = 30.0
_PIECE = 4 << 20
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_SUPERVISE = """
import os, sys
from pyreactant.base.process import die_with_parent
die_with_parent()
if os.getppid() == int(sys.argv.pop(1)):
    from pyreactant.cli.app import main
    main()
"""
"""`pyreactant`, which ends with the actor; its guardian then ends the programs."""
_REMOVE = """
{
  while IFS= read -r _; do :; done
  for pause in 0 1 2 4 8; do # programs that still end may write files
    sleep "$pause"
    rm -rf "$1" && break
  done
  if [ -n "$2" ] && [ -d "$2" ]; then
    sleep 20 # the keeper may still bring the logs
    if [ -z "$(ls -d "$2"/host-*)" ]; then rm -rf "$2"; fi
  fi
} <&0 >/dev/null 2>&1 &
"""


def remove_at_end(folder: Path, shared: str = "") -> Any:
    """Remove a folder when this process is gone, however it ends.

    Args:
        folder: The folder.
        shared: Folder of all hosts of a job on this machine, which the last one removes.

    Returns:
        What the process must hold until its end. Ray kills the children of an actor, so it is a
        grandchild that waits for the end of its standard input.
    """
    remover = subprocess.Popen(
        ["bash", "-c", _REMOVE, "_", str(folder), shared],  # noqa: S607 - no path holds on every host
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    remover.wait()
    return remover.stdin


class Host:
    """The job's part on one host. Its folder exists as long as the actor.

    Supervisors write logs under one path on every machine, which hosts of one machine share.

    Args:
        name: Name of the job's folder; other users cannot guess it.
    """

    def __init__(self, name: str) -> None:
        self._job = Path(tempfile.gettempdir(), name)
        self._folder = self._job / f"host-{os.getpid()}"
        for folder in (self._job, self._folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._remover = remove_at_end(self._folder, str(self._job))
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def describe(self) -> str:
        """Where this is, as JSON: node, address, host name and process id."""
        import ray

        context = ray.get_runtime_context()
        place = {
            "node": context.get_node_id(),
            "address": ray.util.get_node_ip_address(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        return json.dumps(place)

    def unpack(self, archive: bytes) -> str:
        """Unpack the job's archive, and install the requirements in it; "" or what is wrong."""
        # Python 3.11.0 to 3.11.3 has no filter. The user's own machine has packed the archive.
        how: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
                opened.extractall(self._folder, **how)  # noqa: S202 - it is ours
        except (OSError, tarfile.TarError) as error:
            return f"the job's archive cannot be unpacked ({error})"
        wanted = self._folder / "code" / "work" / "requirements.txt"
        if not wanted.exists():
            return ""
        target = str(self._folder / "requirements")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", target]
        ran = subprocess.run(
            [*pip, "-r", str(wanted)], capture_output=True, text=True, errors="replace", check=False
        )
        return f"pip cannot install the requirements: {ran.stderr[-500:]}" if ran.returncode else ""

    def free_port(self) -> int:
        """A port of this host that nobody listens on."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def run(self, text: str) -> int:
        """Run the supervisor of one process until its end.

        Args:
            text: JSON with "arguments" of ``pyreactant`` and with "settings", the environment.

        Returns:
            Its exit code, negative for a signal.
        """
        asked: dict[str, Any] = json.loads(text)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.lower() not in _PROXIES and not name.startswith("PYREACTANT_")
        }
        code = self._folder / "code"
        # Julia crashes with some preloaded libraries, and gRPC hangs behind proxies.
        settings = {
            **kept,
            "LD_PRELOAD": "",
            "PYTHONPATH": f"{code}{os.pathsep}{self._folder / 'requirements'}",
            **asked["settings"],
        }
        with (self._folder / "supervisor.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SUPERVISE, str(os.getpid()), *asked["arguments"]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=code,
                env=settings,
                start_new_session=True,
            )
        ended = self._process.wait()
        self._ended.set()
        return ended

    def end(self) -> None:
        """Ask the supervisor to end its program."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder in the job's folder."""
        return self._path(name).exists()

    def _path(self, name: str) -> Path:
        return (self._job if name.startswith("runs/") else self._folder) / name

    def read(self, name: str, offset: int) -> bytes:
        """A piece of a file in the job's folder; b"" at its end, or if there is none."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(offset)
                return file.read(_PIECE)
        except OSError:
            return b""

    def pack(self, name: str) -> str:
        """Pack a folder of the job's folder into ``NAME.tar``; "" or what is wrong."""
        if not (self._folder / name).is_dir():
            return ""
        try:
            with tarfile.open(self._folder / f"{name}.tar", "w") as archive:
                archive.add(self._folder / name, name)
        except OSError as error:
            return f"{name} cannot be packed ({error.strerror})"
        return ""

    def close(self) -> None:
        """End what still runs, and remove the folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._ended.wait(5)
        shutil.rmtree(self._folder, ignore_errors=True)
        if not any(self._job.glob("host-*")):
            shutil.rmtree(self._job, ignore_errors=True)


class _CancelledError(Exception):
    """The job is to end before it runs."""


class Keeper:
    """Keeps one job.

    Args:
        text: JSON: "topology", "generation", "slices" or "hosts", "chips", "num_cpus", "num_gpus",
            "arguments" of each supervisor, "settings" of its environment, "wait" in seconds for the
            resources, "keep", the hours for which the value waits to be fetched, and "exit_codes",
            that of each cause.
    """

    def __init__(self, text: str) -> None:
        self._asked: dict[str, Any] = json.loads(text)
        self._folder = Path(tempfile.mkdtemp(prefix="pyreactant-keeper-"))
        self._remover = remove_at_end(self._folder)
        self._state: dict[str, Any] = {
            "state": "requested",
            "reason": "",
            "exit_code": None,
            "cause": "",
        }
        self._touched = time.monotonic()
        self._begun = self._cancelled = False
        self._name = f"pyreactant-job-{secrets.token_hex(8)}"
        self._hosts: list[Any] = []
        self._places: list[dict[str, Any]] = []
        self._held: list[Any] = []
        threading.Thread(target=self._live, daemon=True).start()

    # -- what the submitting machine calls --

    def add(self, piece: bytes) -> None:
        """Append a piece of the job's archive."""
        self._touched = time.monotonic()
        with (self._folder / "archive").open("ab") as file:
            file.write(piece)

    def begin(self) -> None:
        """Start the job; a second call does nothing."""
        if not self._begun:
            self._begun = True
            self._say("queued", "")

    def status(self) -> str:
        """How the job stands, as JSON; "lost" has the process and host whose Ray worker ended."""
        return json.dumps({**self._state, "processes": len(self._places)})

    def cancel(self) -> None:
        """End the job."""
        self._cancelled = True

    def read(self, name: str, offset: int) -> bytes:
        """A piece of a log, ``metrics.jsonl``, ``report.json`` or ``out.tar``; b"" at its end."""
        self._touched = time.monotonic()
        path = self._folder / Path(name).name
        if path.exists():
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(_PIECE)
        if name.startswith(("process-", "metrics")) and self._hosts:
            import ray

            index = int(name[8:].partition(".")[0]) if name[0] == "p" else 0
            with contextlib.suppress(Exception):  # the host is gone: what it had is lost
                piece: bytes = ray.get(
                    self._hosts[index].read.remote(f"runs/{name}", offset), timeout=20
                )
                return piece
        return b""

    # -- its life --

    def _live(self) -> None:
        """Wait for the job, keep it until its end, then until it is fetched."""
        while not self._begun:
            if self._cancelled or time.monotonic() - self._touched > _UNBEGUN:
                self._leave()
            time.sleep(_TICK)
        try:
            self._keep()
        except _CancelledError:
            self._end("cancelled", "cancelled by the user", "interrupted")
        except TimeoutError as error:
            self._end("failed", f"timeout: {error}", "timeout")
        except Exception as error:
            self._end("failed", f"the keeper failed: {type(error).__name__}: {error}", "user")
        self._touched = time.monotonic()
        while time.monotonic() - self._touched < self._asked["keep"] * 3600:
            time.sleep(_TICK)
        self._leave()

    def _leave(self) -> None:
        self.close()
        os._exit(0)  # the actor is not restarted, so Ray forgets it

    def close(self) -> None:
        """Remove what it holds; the caller then kills the actor."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _say(self, state: str, reason: str) -> None:
        self._state = {**self._state, "state": state, "reason": reason}

    def _end(self, state: str, reason: str, cause: str, code: int | None = None) -> None:
        """Free everything, then note how the job ended; without a code, with that of the cause."""
        self._free()
        code = self._asked["exit_codes"][cause] if code is None else code
        lost = self._state.get("lost")
        end = {"state": state, "reason": reason, "exit_code": code, "cause": cause}
        self._state = {**end, "lost": lost}

    def _keep(self) -> None:
        import ray

        archive = ray.put((self._folder / "archive").read_bytes())
        group, count = self._reserve()
        self._say("starting", "")
        self._start_hosts(group, count)
        wrong = self._wait([host.unpack.remote(archive) for host in self._hosts])
        if any(wrong):
            raise RuntimeError(next(filter(None, wrong)))
        del archive  # it may hold secrets
        (self._folder / "archive").unlink()
        runs = self._run()
        self._follow(runs)
        self._collect()
        self._finish()

    def _reserve(self) -> tuple[Any, int]:
        """The placement group of the hosts, and their number; waits until the cluster has it."""
        import ray
        from ray.util.placement_group import placement_group

        asked = self._asked
        if asked["topology"] is None:
            bundle = {"CPU": asked["num_cpus"]}
            if asked["num_gpus"]:
                bundle["GPU"] = asked["num_gpus"]
            hosts = f"{asked['hosts']} host{'s'[: asked['hosts'] > 1]}"
            exist = ray.cluster_resources()
            has = _text({name: exist.get(name, 0) for name in bundle})
            what = f"waits for {hosts} with {_text(bundle)}; the cluster has {has} in total"
            self._say("queued", what)
            group = placement_group([bundle] * asked["hosts"], strategy="SPREAD")
            self._held.append(group)
        else:
            group = self._reserve_slices()
        self._wait([group.ready()], asked["wait"])
        return group, len(group.bundle_specs)

    def _reserve_slices(self) -> Any:
        """Slices as a whole: Ray reserves the first host of a slice, then the others."""
        import ray
        from ray.util.tpu import SlicePlacementGroup

        asked = self._asked
        name = f"{asked['generation']} {asked['topology']}"
        what = f"waits for {asked['slices']} free slice{'s'[: asked['slices'] > 1]} of {name}"
        deadline = time.monotonic() + asked["wait"]
        while True:
            # The first host of each slice has a resource such as "TPU-v6e-16-head".
            exist = {k[4:-5]: n for k, n in ray.cluster_resources().items() if k[-5:] == "-head"}
            self._say("queued", f"{what}; the cluster has {_text(exist) or 'no slice'} in total")
            self._check_cancelled(deadline)
            try:
                slices = SlicePlacementGroup(
                    topology=asked["topology"],
                    accelerator_version=asked["generation"],
                    resources_per_bundle={"TPU": asked["chips"], "CPU": asked["num_cpus"]},
                    num_slices=asked["slices"],
                    chips_per_vm=asked["chips"],
                    head_reservation_timeout_s=5,
                )
            except TimeoutError:
                continue
            self._held.append(slices)
            return slices.slice_placement_group

    def _start_hosts(self, group: Any, count: int) -> None:
        """Start one actor per bundle, in the order of (slice, worker) and not of Ray's bundles."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        asked, remote, name = self._asked, ray.remote(Host), self._name
        resources = {"TPU": asked["chips"]} if asked["topology"] else {}
        started = [
            remote.options(
                num_cpus=asked["num_cpus"],
                num_gpus=asked["num_gpus"],
                resources=resources,
                max_restarts=0,
                max_concurrency=8,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=index
                ),
            ).remote(name)
            for index in range(count)
        ]
        self._hosts = started
        labels = {node["NodeID"]: node.get("Labels") or {} for node in ray.nodes()}
        places = [json.loads(text) for text in self._wait([h.describe.remote() for h in started])]
        for place in places:
            own = labels.get(place["node"], {})
            place["slice"] = own.get("ray.io/tpu-slice-name", "")
            place["worker"] = int(own.get("ray.io/tpu-worker-id") or 0)

        def order(index: int) -> tuple[Any, ...]:
            place = places[index]
            return place["slice"], place["worker"], place["address"], index

        chosen = sorted(range(count), key=order)
        self._hosts = [started[index] for index in chosen]
        self._places = [places[index] for index in chosen]

    def _run(self) -> list[Any]:
        import ray

        asked, count = self._asked, len(self._hosts)
        address, secret = self._places[0]["address"], secrets.token_hex(32)
        port = ray.get(self._hosts[0].free_port.remote(), timeout=30)
        slices = sorted({place["slice"] for place in self._places})
        runs = []
        for index, host in enumerate(self._hosts):
            settings = dict(asked["settings"])
            settings |= {
                "PYREACTANT_NUM_PROCESSES": str(count),
                "PYREACTANT_PROCESS_INDEX": str(index),
                "PYREACTANT_COORDINATOR_ADDRESS": f"{address}:{port}",
                "PYREACTANT_SECRET": secret,
            }
            if len(slices) > 1:
                settings |= {
                    "MEGASCALE_COORDINATOR_ADDRESS": address,
                    "MEGASCALE_NUM_SLICES": str(len(slices)),
                    "MEGASCALE_SLICE_ID": str(slices.index(self._places[index]["slice"])),
                }
            text = json.dumps({"arguments": asked["arguments"], "settings": settings})
            runs.append(host.run.remote(text))
        return runs

    def _follow(self, runs: list[Any]) -> None:
        """Wait until every supervisor has ended; note the first Ray worker that did not live."""
        import ray

        left, deadline, asked_to_end = dict(zip(runs, range(len(runs)), strict=True)), None, False
        while left:
            ready, _ = ray.wait(list(left), timeout=_TICK)
            for ref in ready:
                index = left.pop(ref)
                try:
                    ended = ray.get(ref)
                except ray.exceptions.RayError:
                    ended = None
                    self._note_lost(index)
                    self._hosts[index] = self._in_its_place(index)
                if deadline is None and (ended is None or ended or not index):
                    deadline = time.monotonic() + _AFTER_FIRST
            if self._cancelled and not asked_to_end:
                asked_to_end = True
                deadline = time.monotonic() + _CANCELLED
                for host in self._hosts:
                    host.end.remote()
            if deadline is not None and time.monotonic() > deadline:
                return
            if self._state["state"] == "starting" and self._begins():
                self._say("running", "")

    def _begins(self) -> bool:
        import ray

        try:
            begun: bool = ray.get(self._hosts[0].exists.remote("runs/process-0.log"), timeout=5)
        except ray.exceptions.RayError:
            return False
        return begun

    def _note_lost(self, index: int) -> None:
        if not self._state.get("lost"):
            place = self._places[index]
            where = f"{place['host']} ({place['address']})"
            self._state["lost"] = {
                "process": index,
                "host": place["host"],
                "summary": f"process {index} on {where} was lost: its Ray worker (pid "
                f"{place['pid']}) ended",
            }

    def _in_its_place(self, index: int) -> Any:
        """An actor on the host of one that is gone, for the log there."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._places[index]["node"]
        there = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        remote = ray.remote(Host)
        return remote.options(num_cpus=0, scheduling_strategy=there).remote(self._name)

    def _collect(self) -> None:
        """Bring logs, report and value of the hosts that still answer."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._hosts[0].pack.remote("out"), timeout=600)
        for index in range(len(self._hosts)):
            name = f"process-{index}.log"
            self._copy(index, f"runs/{name}", name)
        for name in ("report.json", "metrics.jsonl"):
            self._copy(0, f"runs/{name}", name)
        self._copy(0, "supervisor.log", "supervisor.log")
        self._copy(0, "out.tar", "out.tar")

    def _copy(self, index: int, source: str, name: str) -> None:
        import ray

        offset = 0
        partial = self._folder / f".{name}"
        try:
            with partial.open("wb") as file:
                while piece := ray.get(self._hosts[index].read.remote(source, offset), timeout=120):
                    file.write(piece)
                    offset += len(piece)
        except (ray.exceptions.RayError, OSError):
            return
        if offset:
            partial.rename(self._folder / name)

    def _finish(self) -> None:
        """How the job ended, by the report and by what happened to the Ray workers."""
        lost = self._state.get("lost")
        try:
            report: dict[str, Any] = json.loads((self._folder / "report.json").read_bytes())
        except (OSError, ValueError):
            report = {}
        cause = report.get("cause", "")
        if self._cancelled and cause != "done":
            self._end("cancelled", "cancelled by the user", "interrupted")
        elif lost and cause in ("", "lost", "preempted", "interrupted"):
            self._end("failed", f"lost: {lost['summary']}", "lost")
        elif cause == "done":
            self._end("done", "; ".join(report.get("notes", ())), "done")
        elif report:
            state = "preempted" if cause == "preempted" else "failed"
            code = int(report["exit_code"])
            self._end(state, f"{cause}: {report['summary']}", cause, code)
        else:
            printed = (self.read("supervisor.log", 0)[-500:]).decode(errors="replace").strip()
            self._end(
                "failed", f"the run left no report: {printed or 'it printed nothing'}", "user"
            )

    def _check_cancelled(self, deadline: float | None = None) -> None:
        if self._cancelled:
            raise _CancelledError
        if deadline is not None and time.monotonic() > deadline:
            what = self._state["reason"] or "waits for its hosts to start"
            raise TimeoutError(f"its time is over, and the job {what}")

    def _wait(self, refs: list[Any], limit: float = 600.0) -> list[Any]:
        """The values of tasks, unless the job is cancelled before."""
        import ray

        deadline = time.monotonic() + limit
        while True:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=_TICK)
            if len(ready) == len(refs):
                break
            self._check_cancelled(deadline)
        return list(ray.get(refs))

    def _free(self) -> None:
        """End the hosts and give their resources back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        with contextlib.suppress(Exception):  # a host that is gone has nothing to close
            ray.wait(
                [h.close.remote() for h in self._hosts], num_returns=len(self._hosts), timeout=10
            )
        for host in self._hosts:
            ray.kill(host)
        self._hosts = []
        for held in self._held:
            with contextlib.suppress(Exception):
                held.shutdown() if hasattr(held, "shutdown") else remove_placement_group(held)
        self._held = []


def _text(bundle: dict[str, float]) -> str:
    return " and ".join(f"{value:g} {name}" for name, value in bundle.items())
