"""What other programs say when something goes wrong: JAX, XLA, Julia, Slurm, tensorstore, ...

Their words are matched here alone, since they may change with each version of them. What this
package says is never matched: its states, causes and errors travel as data.
"""

import re

_RUNTIME_ERRORS = r"(XlaRuntimeError|JaxRuntimeError|RuntimeError|ValueError|JuliaError):"
_CONNECTION = (
    r"UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|[Cc]onnection (closed|reset|refused)|"
    r"[Gg]loo|[Hh]eartbeat|[Cc]oordination ?[Ss]ervice|[Ss]ocket closed|NCCL|by peer|"
    # Julia's words: EOFError, and IOError with libuv's names of errors.
    r"EOFError|\b(ECONN(RESET|REFUSED|ABORTED)|EPIPE|ETIMEDOUT|ENOTCONN)\b|[Bb]roken pipe"
)
# The machine's own name has no address, or one that the machine does not have.
_UNRESOLVED = r"gloo/transport/tcp/device\.cc:\d+\] (rv == 0\. -\d+ vs 0|bind_rv == 0\.)"
# Of a full disk, tensorstore says RESOURCE_EXHAUSTED, too, in a ValueError.
_NO_MEMORY = (
    r"MemoryError:|\w*OutOfMemoryError:|"
    r"(XlaRuntimeError|JaxRuntimeError|JuliaError):"
    r"[\s\S]*(RESOURCE_EXHAUSTED|[Oo]ut of memory|OutOfMemory)|"
    r"\w+: RESOURCE_EXHAUSTED(?![\s\S]*(No space left|[Qq]uota))"
)
_NO_THREAD = "can't start new thread"


def cause_of(error: str) -> str:
    """What an error "Type: message" of Python, JAX or Julia is about.

    Returns:
        "out of memory", "unresolved" if this machine has no address for its own name, "no thread"
        if the system starts none, "lost" for a connection to another process, or "user" for all
        others.
    """
    if error == f"RuntimeError: {_NO_THREAD}":
        return "no thread"
    if re.search(_UNRESOLVED, error):
        return "unresolved"
    if re.match(_NO_MEMORY, error):
        return "out of memory"
    return "lost" if re.match(_RUNTIME_ERRORS, error) and is_connection(error) else "user"


def is_connection(error: str) -> bool:
    """Whether an error "Type: message" is about a connection, whatever its type."""
    return re.search(_CONNECTION, error) is not None


def is_thread_limit(error: RuntimeError) -> bool:
    """Whether Python could not start a thread."""
    return str(error) == _NO_THREAD


def no_thread(log: str) -> str:
    """What a library that could not start a thread has printed; "" if none has.

    XLA and gRPC abort or go on without it, and OpenBLAS sends SIGINT to its own process.
    """
    line = re.search(r"pthread_create(\(\))? failed.*", log)
    return line[0].strip() if line else ""


# JAX and XLA


def is_absent_key(error: Exception) -> bool:
    """Whether JAX's store has no such key."""
    return str(error).startswith("NOT_FOUND")


def is_late(error: Exception) -> bool:
    """Whether JAX's coordination service says that some process did not come in time."""
    return str(error).startswith("DEADLINE_EXCEEDED")


def is_too_large(error: str) -> bool:
    """Whether XLA refuses a program because the devices' memory does not hold it."""
    return error.startswith("RESOURCE_EXHAUSTED")


def has_other_devices(error: Exception) -> bool:
    """Whether JAX says that arguments lie on other devices, or on these in another order."""
    return "incompatible devices" in str(error)


def has_other_mesh(error: Exception) -> bool:
    """Whether JAX says something of the mesh of shard_map."""
    return "mesh" in str(error)


def has_own_mesh(error: Exception) -> bool:
    """Whether JAX says that shard_map got another mesh than that of the context."""
    return "should match the mesh passed to" in str(error)


def unknown_call(error: str) -> str | None:
    """The custom call that libtpu does not know, if that is why it does not compile."""
    lacking = re.search(r"Custom emitter for (\S+) not found", error)
    return lacking and lacking[1]


def unknown_operation(error: Exception) -> str | None:
    """The operation whose dialect MLIR does not know."""
    operation = re.search(r"Dialect `\w+' not found for custom op '([^']+)'", str(error))
    return operation and operation[1]


def fatal(log: str) -> str | None:
    """The message with which Google's logging ended a process."""
    last = re.search(r"^F\d{4} [^\]]*\] (.*)", log, re.MULTILINE)
    return last and last[1]


def unknown_flags(log: str) -> tuple[str, str] | None:
    """The variable with flags that XLA does not know, and these flags."""
    flags = re.search(r"Unknown flags? in (\w+): (.*)", log)
    return flags and (flags[1], flags[2])


def unusable(log: str) -> str | None:
    """Why JAX cannot use an accelerator."""
    why = re.search(r"Unable to initialize backend '(?:cuda|rocm|tpu)': (.+)", log)
    return why and why[1]


def owner(log: str) -> int | None:
    """The process that has the TPU, as libtpu says."""
    process = re.search(r"already in use by process with pid (\d+)", log)
    return process and int(process[1])


_BUSY = re.compile(
    r".*(?:already in use|Device or resource busy|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|"
    r"devices are busy or unavailable).*",
    re.IGNORECASE,
)


def busy(log: str) -> str | None:
    """The line that says that an accelerator is in use."""
    line = _BUSY.search(log)
    return line and line[0]


# juliapkg and Julia's package manager


def finds_no_julia(message: str) -> bool:
    """Whether juliapkg finds no Julia, and must not install one."""
    return "could not find Julia" in message


def fits_no_julia(message: str) -> bool:
    """Whether the packages allow no common version of Julia."""
    return "empty intersection" in message or "no version of Julia is compatible" in message


_NETWORK = re.compile(
    r"could not resolve host|name or service not known|temporary failure in name resolution|"
    r"network is unreachable|failed to connect|couldn't connect|connection (refused|timed out)|"
    r"connection reset|RequestError|urlopen error|failed to download|could not download|"
    r"failed to clone|timed? ?out (while|after)|SSL (error|certificate)",
    re.IGNORECASE,
)


def is_disk_full(log: str) -> bool:
    """Whether an installation found no room on the disk."""
    return re.search(r"no space left|ENOSPC|disk quota exceeded|EDQUOT", log, re.I) is not None


def is_read_only(log: str) -> bool:
    """Whether an installation may not write."""
    wrong = r"read-only file system|EROFS|permission denied|EACCES"
    return re.search(wrong, log, re.I) is not None


def is_offline(log: str) -> bool:
    """Whether an installation did not reach the network."""
    return _NETWORK.search(log) is not None


# Slurm


def has_ended(line: str) -> bool:
    """Whether scancel says that the job ends or has ended."""
    return "already completing or completed" in line


def without_controller(said: str) -> str:
    """What a command of Slurm says of a controller that it did not reach; "" if it did.

    Of several lines the first has the cause and the last what follows from it. Where there is no
    configuration, the last says it all: those before are about the ways to look for one.
    """
    if _NO_CONFIGURATION in said:
        return _NO_CONFIGURATION
    if not any(words in said for words in _NO_CONTROLLER):
        return ""
    return "; ".join(dict.fromkeys(line.strip() for line in said.strip().splitlines()))


_NO_CONFIGURATION = "Could not establish a configuration source"
_NO_CONTROLLER = (
    "Unable to contact slurm controller",
    "Unable to process configuration file",
)


def slurm_error(log: str) -> str:
    """The first error of Slurm in the output of a batch script; "" if there is none.

    That a task ended with an exit code is no error of Slurm.
    """
    line = re.search(r"^(srun|slurmstepd): (error|fatal): (?!.*Exited with exit code).+", log, re.M)
    return line[0].strip() if line else ""


def is_out_of_memory(error: str) -> bool:
    """Whether an error of Slurm says that the memory of the job was too small."""
    return re.search(r"oom_kill|Out Of Memory|exceeded memory limit", error) is not None


# Packages that cannot be imported


def is_of_numpy(error: Exception) -> bool:
    """Whether a compiled module says that NumPy cannot be imported."""
    return re.match(r"numpy\.\w*core\.multiarray failed to import", str(error)) is not None


def wrong_variable(error: BaseException) -> tuple[str, str] | None:
    """The environment variable that JAX cannot read while it is imported, and its value."""
    if not isinstance(error, ValueError):
        return None
    said = re.match(r"invalid truth value '(.*)' for environment '(\w+)'", str(error))
    if said is not None:
        return said[2], said[1]
    said = re.match(r'Invalid value "(.*)" for JAX flag (\w+)', str(error))
    return said and (said[2].upper(), said[1])


def reason_of_import(error: BaseException) -> str:
    """The exception of an import in one line; NumPy writes a page, with the reason at its end."""
    text = str(error)
    if match := re.search(r"^Original error was: (.+)", text, re.MULTILINE):
        text = match[1]
    line = next(filter(None, map(str.strip, text.splitlines())), "")
    kind = "" if isinstance(error, ImportError) and line else f"{type(error).__name__}: "
    return f"{kind}{line}".removesuffix(": ").rstrip(".")


def is_store_away(reason: str) -> bool:
    """Whether tensorstore says that a store does not answer or refuses, not that data are wrong."""
    away = "UNAVAILABLE|PERMISSION_DENIED|UNAUTHENTICATED|DEADLINE_EXCEEDED|ABORTED"
    return re.search(away, reason) is not None


def tensorstore_reason(error: Exception) -> str:
    """What tensorstore says of an error, in one line without its specification of the array."""
    pattern = r" \[(?:tensorstore_spec|source locations|http_response_body)=?"
    return re.split(pattern, str(error))[0].partition("\n")[0]
