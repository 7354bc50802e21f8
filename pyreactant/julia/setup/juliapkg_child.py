"""A script that asks juliapkg, in a process of its own: juliapkg reads its settings on import.

It imports nothing of pyreactant, so that juliapkg always sees the same Python path. The answer is
JSON in the file that the first argument names.
"""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_OURS = Path(__file__).resolve().parents[2] / "juliapkg.json"


def look() -> dict[str, Any]:
    """The project that juliapkg would take and the files that it follows, or absent packages."""
    absent = [n for n in ("juliapkg", "juliacall") if importlib.util.find_spec(n) is None]
    if absent:
        return {"absent": absent}
    from juliapkg.deps import deps_files  # its public names resolve first
    from juliapkg.state import STATE

    own = Path(STATE["deps"]).absolute()  # which `resolve` changes
    paths = [path for path in map(Path, deps_files()) if path != own]
    files = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    return {"project": STATE["project"], "files": files}


def resolve(julia: str | None, force: bool, any_version: bool) -> dict[str, Any]:
    """Find or install Julia and the packages.

    Args:
        julia: The versions of Julia that are allowed, in juliapkg's notation; "" for any, None
            for those of the last call.
        force: Whether to resolve even if juliapkg sees no change: it does not check preferences.
        any_version: Whether to install any version of Reactant.
    """
    import juliapkg
    from juliapkg.state import STATE

    _remove_damaged(Path(STATE["meta"]))
    own = Path(STATE["deps"])
    _remove_damaged(own)
    if julia is not None and (julia or own.exists()):
        own.parent.mkdir(parents=True, exist_ok=True)
        partial = own.with_name("juliapkg.partial.json")
        partial.write_bytes(own.read_bytes() if own.exists() else b"{}")
        juliapkg.require_julia(julia or None, target=str(partial))
        if partial.exists():  # juliapkg removes an empty file
            partial.replace(own)
        else:
            own.unlink(missing_ok=True)
    if any_version:
        _admit_any_version(Path(STATE["meta"]).with_name("any-version.json"))
    juliapkg.resolve(force=force)
    return {"executable": juliapkg.executable(), "project": juliapkg.project()}


def _admit_any_version(relaxed: Path) -> None:
    """Let juliapkg read our requirements without the version of Reactant; it has no such option."""
    from juliapkg import deps

    required = json.loads(_OURS.read_bytes())
    del required["packages"]["Reactant"]["version"]
    relaxed.parent.mkdir(parents=True, exist_ok=True)
    relaxed.write_text(json.dumps(required))
    all_files = deps.deps_files

    def deps_files() -> list[str]:
        files = [str(relaxed) if _OURS.samefile(path) else path for path in all_files()]
        if str(relaxed) not in files:
            raise RuntimeError(f"juliapkg must follow {_OURS}, but does not")
        return files

    deps.deps_files = deps_files


def _remove_damaged(path: Path) -> None:
    """Remove a file that juliapkg was writing when it was killed: it cannot read it."""
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        pass
    except ValueError:
        path.unlink()


def main(answer: str, above: str, task: str, *arguments: str) -> int:
    """Run one task, and return the exit code."""
    if above not in sys.path:
        sys.path.append(above)
    try:
        content = look() if task == "look" else resolve(*json.loads(arguments[0]))
    except subprocess.CalledProcessError as error:
        # What Julia printed says why. Its command line holds a script of many lines: a traceback
        # with it would take the place of Julia's words in the last lines of the log.
        command = error.cmd if isinstance(error.cmd, str) else Path(error.cmd[0]).name
        message = f"{command} ended with exit code {error.returncode}"
        content = {"error": type(error).__name__, "message": message}
    except Exception as error:
        import traceback

        traceback.print_exc()
        content = {"error": type(error).__name__, "message": str(error)}
    Path(answer).write_text(json.dumps(content))
    return int("error" in content)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
