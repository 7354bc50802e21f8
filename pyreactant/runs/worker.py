"""The program that every process of a job runs: ``-m pyreactant.runs.worker WORK OUT``.

``-m pyreactant.runs.worker FILE.py:NAME`` calls a function in the current folder, without a copy.

It runs the function, or the program, of ``WORK/call.json`` in the copy of the code. Process 0
writes the function's value to ``OUT/value``. What is raised goes to the supervisor, as for every
program.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ..base.errors import ExitCode, InvalidArgumentError, PyReactantError
from ..base.imports import text_of_users
from ..base.settings import INDEX
from ..process import supervised
from ..process.events import Raised
from . import call as _call
from .call import find_julia, is_remote, resolve
from .record import private_folder, written


def main() -> None:
    """Run what ``call.json`` names, with the environment that the user named."""
    if len(sys.argv) == 2:
        called = resolve(sys.argv[1])
        assert called.file is not None
        sys.path[0] = str(called.file.parent)
        data = {"text": called.text, "file": called.file, "module": called.module}
        _called(_find({**data, "name": called.name}, Path()), {"args": [], "kwargs": {}})
        return
    work, out = (Path(path).resolve() for path in sys.argv[1:3])
    call = json.loads((work / "call.json").read_bytes())
    with contextlib.suppress(FileNotFoundError):
        os.environ.update(json.loads((work / "env.json").read_bytes()))
    os.chdir(work / "code" / call["cwd"])
    if call["program"]:
        _run_program(call["program"], call["kind"])
        return
    if call["root"] is not None:
        sys.path[0] = str(work / "code" / call["root"])
    function = _find(call, work)
    from .values import Encoder, read, store, write

    given = read(work / "arguments")
    process = os.getpid()
    value = _called(function, given)
    if os.getpid() != process:  # a fork that the function made, and that returned from it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ExitCode.DONE)
    encoder = Encoder("the value of the function", gathered)
    tree = encoder.encode(value)  # on every process, because gathering is collective
    if int(os.environ.get(INDEX) or 0) == 0:
        with written(out):
            private_folder(out)
            write(out / "value", tree, encoder.arrays)
        if call.get("store"):
            from ..base.storage import Folder, login_of_machine

            store(out / "value", Folder(call["store"], login_of_machine))


def _called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """The function's value; None if it ends the program without an error, as scripts do."""
    try:
        return function(*given["args"], **given["kwargs"])
    except SystemExit as error:
        if error.code:
            raise
        return None


def _run_program(words: list[str], kind: str) -> None:
    """Run a Python program as Python does, or any command, from the copy of the code."""
    from ..process.supervised.command import become
    from .supervisor.program import for_julia

    try:
        if kind == "julia":
            executable = find_julia(words[0])
            os.environ.update(for_julia(os.environ))
            become(words, executable)
        if kind == "command":
            become(words, words[0] if shutil.which(words[0]) else str(Path(words[0]).resolve()))
    except PyReactantError as error:
        _refuse(error)
    from ..process.supervised.main import run_program

    run_program(words)


def _find(call: Mapping[str, Any], work: Path) -> Callable[..., Any]:
    """The function, imported from the copy under another name than ``__main__``."""
    name, module = call["name"], call["module"]
    _call.importing = call["text"]
    try:
        if call["file"] is None:
            value: Any = importlib.import_module(module)
        else:
            value = _load_script(work / "code" / call["file"], module)
    except SystemExit as end:
        why = f"{call['text']} cannot be imported: {text_of_users(end)}"
        _refuse(InvalidArgumentError(f"{why}; an import must not end the program"))
    finally:
        _call.importing = None
    for part in name.split("."):
        if not hasattr(value, part):
            problem = f"{call['text']}: the file has no {part!r}; name a function that it has"
            _refuse(InvalidArgumentError(problem))
        value = getattr(value, part)
    function: Callable[..., Any] = value.local if is_remote(value) else value
    if not callable(function):
        problem = f"{call['text']} must be a function, got {function!r:.80}; name a function"
        _refuse(InvalidArgumentError(problem))
    return function


def _refuse(error: PyReactantError) -> NoReturn:
    """End the program by an error of its caller, to whom a traceback of pyreactant says nothing."""
    supervised.tell(Raised.of(error))
    sys.stderr.write(f"pyreactant: error: {error}\n")
    raise SystemExit(error.exit_code)


def _load_script(file: Path, name: str) -> ModuleType:
    """The module of a script; its other files can import it under the same name."""
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"_job_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gathered(value: Any) -> Any:
    """The whole of an array that lies on devices, on every process. Collective."""
    import numpy as np

    if hasattr(value, "gather"):
        return value.gather()
    if value.is_fully_addressable:
        return np.asarray(value)
    from ..arrays.runtimes.operations import from_jax

    return from_jax(value).gather()


if __name__ == "__main__":
    main()
