"""What is asked of juliapkg, in a process of its own: it reads its settings when imported.

Runs as a script, with nothing of pyreactant, so that juliapkg sees the same Python path whoever
asks. The answer is JSON, in the file that the first argument names.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def look() -> dict[str, Any]:
    """The project that juliapkg would take and all that asks it, or which package is absent."""
    absent = [n for n in ("juliapkg", "juliacall") if importlib.util.find_spec(n) is None]
    if absent:
        return {"absent": absent}
    from juliapkg.state import STATE  # its public names would resolve first

    return {"project": STATE["project"], "files": requirements()}


def requirements() -> dict[str, str]:
    """Digests of the juliapkg.json files of everything installed here."""
    files = {}
    for entry in map(Path, sys.path):
        for path in (entry / "juliapkg.json", *sorted(entry.glob("*/juliapkg.json"))):
            with contextlib.suppress(OSError):
                files[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def resolve(julia: str | None, force: bool) -> dict[str, Any]:
    """Find or install Julia and the packages.

    Args:
        julia: Versions of Julia that will do, as juliapkg writes them; "" for any, None for
            what was said before.
        force: Also where juliapkg finds all as it left it: it does not look at preferences.
    """
    import juliapkg
    from juliapkg.state import STATE

    _forget_damaged(Path(STATE["meta"]))
    own = Path(STATE["deps"])
    _forget_damaged(own)
    if julia is not None and (julia or own.exists()):
        own.parent.mkdir(parents=True, exist_ok=True)
        partial = own.with_name("juliapkg.partial.json")
        partial.write_bytes(own.read_bytes() if own.exists() else b"{}")
        juliapkg.require_julia(julia or None, target=str(partial))
        if partial.exists():  # it removes what says nothing
            partial.replace(own)
        else:
            own.unlink(missing_ok=True)
    juliapkg.resolve(force=force)
    return {"executable": juliapkg.executable(), "project": juliapkg.project()}


def _forget_damaged(path: Path) -> None:
    """Remove what juliapkg was writing when it was killed: it would never get over it."""
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        pass
    except ValueError:
        path.unlink()


def main(answer: str, above: str, task: str, *arguments: str) -> int:
    """Do it; the exit code."""
    if above not in sys.path:
        sys.path.append(above)
    try:
        said = look() if task == "look" else resolve(*json.loads(arguments[0]))
    except Exception as error:
        import traceback

        traceback.print_exc()
        said = {"error": type(error).__name__, "message": str(error)}
    Path(answer).write_text(json.dumps(said))
    return int("error" in said)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
