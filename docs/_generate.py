"""Write docs/reference/: every command, from the commands, and every name, from the docstrings.

`make docs` runs it before it builds the site.
"""

from pathlib import Path

from typer.cli import app
from typer.testing import CliRunner

import pyreactant as pr

REFERENCE = Path(__file__).parent / "reference"
SECTIONS = {
    "Start and end": "initialize is_initialized shutdown backend_name process_index num_processes "
    "devices local_devices barrier reached_preemption Device",
    "Meshes and shardings": "Mesh make_mesh NamedSharding",
    "Arrays": "device_put from_callback from_process_local from_jax gather reshard ShardedArray "
    "Shard Aval",
    "Programs": "compile Compiled Program program Domain Integers Uniform as_jax matmul_sharded",
    "Checks": "crosscheck Report testing.assert_crosscheck",
    "Absent slices": "topology preflight Preflight plan Plan",
    "Jobs": "submit remote Job targets.Local targets.Slurm targets.TPU targets.Ray",
    "Metrics and profiles": "log report profile",
    "Checkpoints": "Checkpoints save restore",
    "Reactant's preferences": "preferences.get preferences.set preferences.unset",
    "Errors": "PyReactantError InvalidArgumentError ShardingError DTypeError NotAddressableError "
    "StateError FileError RequirementError RendezvousError MismatchError DeadlineError RemoteError",
}
HEAD = """# API

Every public name, from its docstring; [The Python interface](../interface.md) is the overview. The
examples run in the tests, one after the other. They use `pr`, `np`, `jax`, `jnp`, `Path` and these:

```python
import numpy as np
import pyreactant as pr

mesh = pr.Mesh((2, 4), ("x", "y"))
sharding = pr.NamedSharding(mesh, ("x", "y"))
rows, whole = pr.NamedSharding(mesh, ("x",)), pr.NamedSharding(mesh, ())
x = pr.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), sharding)
```
"""
# Where a name is defined, if it is also the name of a module.
DEFINED = {"crosscheck": "check.run.crosscheck"}


def api() -> str:
    """The page of all public names; mkdocstrings puts the docstrings in."""
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names.split():
            path = DEFINED.get(name, name)
            parts += [f"### `pr.{name}`\n", f"::: pyreactant.{path}\n"]
    return "\n".join(parts)


def commands() -> str:
    """The page of all commands, as typer writes it."""
    argv = ["pyreactant.cli.app", "utils", "docs", "--name", "pyreactant"]
    text = CliRunner().invoke(app, argv).output.replace("# `pyreactant`", "# Commands", 1)
    # Examples are indented by two spaces: code needs four.
    lines = [f"  {line}" if line.startswith("  pyreactant") else line for line in text.splitlines()]
    return "\n".join(line.rstrip() for line in lines).strip() + "\n"


def main() -> None:
    public = {name for name in pr.__all__ if name not in ("__version__", "targets")}
    listed = {name for names in SECTIONS.values() for name in names.split()}
    absent = public - listed - {"preferences", "testing"}
    if absent:
        raise SystemExit(f"name these in SECTIONS of {__file__}: {', '.join(sorted(absent))}")
    REFERENCE.mkdir(exist_ok=True)
    (REFERENCE / "api.md").write_text(api())
    (REFERENCE / "commands.md").write_text(commands())


if __name__ == "__main__":
    main()
