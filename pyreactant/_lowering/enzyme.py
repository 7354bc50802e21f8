"""Derivatives of a module by Enzyme, in a child process; see `enzyme_child`.

Enzyme's library may end its process (0.0.16 does so for a sort), takes seconds to load, and leaves
files behind when it fails. So the process that computes never loads it: it gets the derivatives as
StableHLO.
"""

import functools
import importlib.util
import tempfile
from collections.abc import Mapping

from .._errors import InvalidArgumentError, RequirementError
from .._system.child import Activity, ChildLostError, ask_child
from .ask import environment

DTYPES = ("float32", "float64", "bfloat16")
"""Element types that can be differentiated."""


def check_enzyme() -> None:
    """Check that Enzyme's package is installed.

    Raises:
        RequirementError: It is not.
    """
    if importlib.util.find_spec("enzyme_ad") is None:
        raise RequirementError(
            "differentiable=True needs the package enzyme-ad, which is not installed: python -m "
            "pip install 'pyreactant[enzyme]' (its wheel is for Python 3.11 on Linux x86-64); or "
            "leave differentiable=True out, for values without gradients"
        )


@functools.lru_cache(maxsize=32)
def derivatives(what: str, text: str, timeout: float) -> Mapping[str, Mapping[str, str]]:
    """The modules of the derivatives of a module, by "forward" and "reverse".

    Args:
        what: The function in the words of a message.
        text: The module; its arguments and results have types of `DTYPES`.
        timeout: Seconds until the child is killed.

    Returns:
        {"text"} of the module, or {"failed"} with Enzyme's message, for each.

    Raises:
        InvalidArgumentError: Enzyme has none, or ended its process.
        DeadlineError: The child did not answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="pyreactant-enzyme-") as folder:
        # Enzyme writes modules that it cannot differentiate into the temporary folder.
        environ = {
            **environment(),
            "JAX_PLATFORMS": "cpu",
            "TMPDIR": folder,
            "TEST_UNDECLARED_OUTPUTS_DIR": folder,
        }
        try:
            found = ask_child(
                "pyreactant._lowering.enzyme_child",
                environ,
                {"text": text},
                timeout=timeout,
                activity=Activity(f"differentiating {what}", "differentiates", "Enzyme"),
            )
        except ChildLostError as error:
            raise InvalidArgumentError(
                f"{what}: Enzyme ended its process, so it cannot differentiate this program; write "
                "the part that it cannot differentiate (a sort, for instance) in JAX, or leave "
                f"differentiable=True out. {error}"
            ) from None
    if all("failed" in one for one in found.values()):
        listed = "; ".join(f"{mode}: {one['failed']}" for mode, one in found.items())
        raise InvalidArgumentError(
            f"{what}: Enzyme cannot differentiate it ({listed}); write the part that it cannot "
            "differentiate in JAX, or leave differentiable=True out"
        )
    return found
