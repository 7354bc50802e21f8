"""What a program's name means to the runtime that lowers it."""

from .._errors import InvalidArgumentError
from .._program import Program
from ..programs import CASES, find_case

BACKENDS = ("jax", "reactant")


def find_program(program: Program | str, backend: str) -> Program | None:
    """The program of that name; None for the product of two matrices, which has options of its own.

    Args:
        program: Itself, the name of a built-in one, or a function of the runtime:
            "package.module:function" of JAX's, "Module.function" of Julia's. For Reactant
            "package.module:object" is a `Program`, whose bodies it names.
        backend: "jax" or "reactant".

    Raises:
        InvalidArgumentError: There is no such program.
    """
    if backend not in BACKENDS:
        raise InvalidArgumentError(
            f"unknown backend {backend!r}; a program is lowered by one of: {', '.join(BACKENDS)}"
        )
    if isinstance(program, Program):
        return program
    if program == "matmul":
        return None
    if isinstance(program, str):
        if program in CASES:
            return CASES[program].program
        if backend == "jax" and ":" in program:
            return Program(program.rpartition(":")[2], jax=program)
        if ":" in program:
            return find_case(program).program
        if backend == "reactant" and "." in program:
            return Program(program.rpartition(".")[2], julia=program)
    example = "package.module:function" if backend == "jax" else "Module.function"
    language = "JAX" if backend == "jax" else "Julia"
    raise InvalidArgumentError(
        f"a program is 'matmul', another built-in one ({', '.join(list(CASES)[1:4])}, ...), a "
        f"pyreactant.Program or the name of a {language} function such as {example!r}, got "
        f"{program!r}"
    )
