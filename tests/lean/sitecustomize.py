"""What a new Python of the tests does when it starts. Tests marked `anew` start as a user's does.

It looks for garbage less often, as forks do (`tests.template`). Importing JAX makes half a million
objects that stay. Looking for garbage among them, meanwhile and at the end, takes a quarter of the
processor time of a program that only imports it.

On the tests' TPU VMs it takes the modules that are compiled here. Each run there unpacks the
package into a folder of its own, in which Python would compile it again. An unpacked file has the
size and the time of the file here, by which Python knows what a compiled module belongs to.
"""

import _frozen_importlib_external as importing
import atexit
import gc

gc.set_threshold(50_000, 20, 50)
atexit.register(gc.freeze)  # Python's end then looks at no object

HERE = __file__.removesuffix("tests/lean/sitecustomize.py")

compiled_at = importing.cache_from_source


def compiled_here(
    path: str, debug_override: bool | None = None, *, optimization: object = None
) -> str:
    """The file for the compiled module of a source."""
    folder, found, rest = path.rpartition("/code/pyreactant/")
    if found and "/workers/home/pyreactant-" in folder:
        path = f"{HERE}pyreactant/{rest}"
    return compiled_at(path, debug_override, optimization=optimization)


vars(importing)["cache_from_source"] = compiled_here
