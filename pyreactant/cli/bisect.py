"""`pyreactant bisect`: cut a program with wrong results down to its cause."""

import json
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import InvalidArgumentError
from .command import App, AsJson, duration, examples

app = App()


@app.command(
    epilog=examples(
        "pyreactant bisect check",
        "pyreactant bisect mymodule:program --bad platform=gpu",
        "pyreactant bisect mymodule:program --good jax==0.10.2 --bad jax==0.12.0.1",
    )
)
def bisect(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|PROGRAM",
            help="Folder of a cross-check that failed, package.module:object or FILE.py:object.",
        ),
    ],
    good: Annotated[
        list[str] | None,
        typer.Option(
            help="Way that is right: platform=cpu, flags=--xla_..., plugin=FILE, python=FILE, "
            "jax==VERSION, backend=reactant, or interpreter; several together make one.",
            show_default="the program's oracle",
        ),
    ] = None,
    bad: Annotated[
        list[str] | None,
        typer.Option(help="Way that is wrong, as --good.", show_default="that of the cross-check"),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="The n of the program's shapes.", show_default="its default")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Element type.", show_default="its default")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the result; a call that was ended goes on there.",
            show_default="bisect, in FOLDER or here",
            readable=False,
        ),
    ] = None,
    each: Annotated[float, duration(help="Time limit of one run.")] = 120.0,
    timeout: Annotated[float | None, duration(help="Time limit of all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cut a program with wrong results down to the operations that are wrong."""
    from ..check.bisect.bisect import RESULT, TEXT, lines_of, problem_of
    from ..check.bisect.bisect import bisect as run
    from ..check.bisect.shrink import Problem
    from ..check.bisect.way import KINDS, parse_way
    from .console import working

    sys.path.append(str(Path.cwd()))
    folder = Path(what)
    if folder.is_dir():
        for name, value in (("--size", size), ("--dtype", dtype), ("--seed", seed or None)):
            if value is not None:
                raise InvalidArgumentError(f"{name} is in the cross-check's folder; leave it out")
        problem, way = problem_of(folder)
        out = out or folder / "bisect"
    elif ":" in what or bad:
        if not bad:
            raise InvalidArgumentError(
                f"{what}: a program needs the way that is wrong, such as --bad platform=cpu "
                f"(--bad takes {KINDS}); or give the folder of a cross-check that failed"
            )
        problem, way = (
            Problem(program=what, size=size, dtype=dtype, seed=seed),
            parse_way(bad, "--bad"),
        )
    else:
        raise InvalidArgumentError(
            f"{what}: there is no such folder; give the folder of a cross-check that failed, or a "
            "program as package.module:object or FILE.py:object"
        )
    with working("bisecting"):
        right = parse_way(good, "--good") if good else None
        wrong = parse_way(bad, "--bad") if bad else way
        if right == wrong:
            raise InvalidArgumentError(
                f"--good and --bad are the same way, {wrong.text}, so nothing can differ; give "
                "another one as --good, or leave it out if the program has an oracle"
            )
        target = out or Path("bisect")
        result = run(
            problem,
            good=right,
            bad=wrong,
            out=target,
            where=what,
            each=each,
            timeout=math.inf if timeout is None else timeout,
        )
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print("\n".join(lines_of(result)))
    script = ", show.py" if "command" in result else ""
    print(f"files       {target}: {RESULT}, {TEXT}{script}")
