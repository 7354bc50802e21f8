"""The report of `pyreactant matmul` for people."""

import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._array import Device
from .._draw import Drawing
from .._matmul_report import MatmulReport, versions
from .._runtime import backend_name, devices, num_processes
from .._text import format_spec


def show_matmul(console: Console, report: MatmulReport, out: Path | None) -> None:
    """Print what was multiplied, where each block lies, and whether it is right."""
    c, (x, y) = report.c, report.shardings
    (m, n), k = c.shape, report.inner
    found = versions()
    console.print(f"matmul ({m}, {k}) @ ({k}, {n}) {c.dtype.name}, {report.operands}")
    console.print(
        f"{backend_name()} {found['jax']} on {_devices(devices())}, "
        f"{num_processes()} process{'' if num_processes() == 1 else 'es'}"
    )
    console.print(
        f"x cut {format_spec(x, 2)}, y cut {format_spec(y, 2)}, product cut "
        f"{format_spec(c.sharding, 2)} on {c.sharding.mesh!r}; blocks of the product:"
    )
    console.print(Drawing(c.sharding, c.shape, devices()))
    table = Table.grid(padding=(0, 2))
    table.add_row("check", _verdict(report))
    if report.check.note:
        table.add_row("", report.check.note)
    if report.check.worst:
        worst = ", ".join(f"{key} {value}" for key, value in report.check.worst.items())
        table.add_row("wrong at", Text(worst, "red"))
    table.add_row("compile", _seconds(report.compile_seconds))
    if report.seconds:
        low, high = min(report.seconds), max(report.seconds)
        table.add_row(
            "per call",
            f"{_seconds(statistics.median(report.seconds))} median of {len(report.seconds)} "
            f"({_seconds(low)} to {_seconds(high)})",
        )
    if report.gflops is not None:
        table.add_row("speed", f"{report.gflops:.3g} GFLOP/s")
    if out is not None:
        table.add_row("product", f"written to {out}" if report.check.passed else "not written")
    console.print(table)


def _verdict(report: MatmulReport) -> Text:
    check = report.check
    how = f"{check.method}, {_seconds(report.check_seconds)}"
    if not check.passed:
        kind = "rows" if check.method == "Freivalds" else "elements"
        return Text(f"WRONG: {check.wrong} {kind} beyond the tolerance ({how})", "bold red")
    return Text(
        f"right: error {check.error:.2e}, allowed {check.tolerance:.2e} there ({how})", "green"
    )


def _devices(found: tuple[Device, ...]) -> str:
    kind = f" ({found[0].kind})" if found[0].kind != found[0].platform else ""
    return f"{len(found)} {found[0].platform} device{'' if len(found) == 1 else 's'}{kind}"


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
