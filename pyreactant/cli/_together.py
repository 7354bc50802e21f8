"""Options that do not go together, or only together: one that would be ignored is an error."""

from collections.abc import Mapping, Set

from .._errors import InvalidArgumentError

NOT_WITH: Mapping[str, Mapping[str, str]] = {
    "topology": {"--all": "--slices"},
    "crosscheck": {
        "--list": "PROGRAM --all --backends --processes --devices-per-process --mesh --spec --size "
        "--dtype --seed --platform --repeat --quick --thorough --gradients --no-gradients "
        "--modules --timeout "
        "--out --html --request",
        "--request": "--backends --processes --devices-per-process --platform --gradients "
        "--no-gradients --modules --timeout --out --html --json",
        "--no-gradients": "--modules",
        "--all": "PROGRAM",
        "--quick": "--thorough",
    },
    "jobs submit": {"--dry-run": "--json"},
    "jobs logs": {"--metrics": "--process"},
    "jobs clean": {"ID": "--older-than"},
    "matmul": {"--x": "--seed"},
    "plan": {"--platform": "--slices --workers --no-cache"},
    "slurm submit": {"SCRIPT": "--size --mesh --spec --dtype --programs"},
    "slurm status": {"--dry-run": "--json"},
    "slurm logs": {"--dry-run": "--process --run"},
    "tpu run": {"SCRIPT": "--size"},
}
"""For each command, options and the others that would be ignored beside them."""

ONLY_WITH: Mapping[str, Mapping[str, str]] = {
    "crosscheck": {"--modules": "--gradients"},
    "matmul": {"--overwrite": "--out", "--device-ids": "--mesh"},
    "preflight": dict.fromkeys(["--column-major", "--row-major"], "--stablehlo"),
    "slurm logs": {"--run": "--process"},
    "tpu create": dict.fromkeys(["--python", "--reach", "--user", "--ssh-flag"], "--ray"),
}
"""For each command, options and the one without which they would be ignored."""


def check_together(command: str, given: Set[str]) -> None:
    """Check the options and arguments of a command line, by name.

    Raises:
        InvalidArgumentError: One of them would be ignored; the message has both names.
    """
    for one, others in NOT_WITH.get(command, {}).items():
        for other in others.split():
            if {one, other} <= given:
                raise InvalidArgumentError(f"give {one} or {other}, not both")
    for one, needed in ONLY_WITH.get(command, {}).items():
        if one in given and needed not in given:
            raise InvalidArgumentError(f"{one} needs {needed}; give both, or leave {one} out")
