"""The list of Reactant's names that julia/src and julia/ext use is whole, and has nothing else."""

import re
import tomllib

import pytest

from pyreactant.julia.place import REACTANT
from tests.harness import REPOSITORY

LIST = REPOSITORY / "julia" / "test" / "internal_names.toml"


def used(text: str) -> set[str]:
    """The names of Reactant in Julia code, without its comments and docstrings."""
    code = re.sub(r"#.*", "", re.sub(r'"""(?:.|\n)*?"""', "", text))
    code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code)
    found = set()
    for name in re.findall(r"\b(?:Reactant|XLA)(?:\.@?\w+)+", code):
        found.add(name.removeprefix("Reactant."))
    return found


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("XLA.IFRT.Array(x) # XLA.other", {"XLA.IFRT.Array"}),
        ('Reactant.XLA.device(x); "XLA.text"', {"XLA.device"}),
        ("Reactant.@code_hlo f(x)", {"@code_hlo"}),
        ('"""\nReactant.compile\n"""\nusing Reactant: Reactant', set()),
    ],
)
def test_names_in_code(code: str, names: set[str]) -> None:
    assert used(code) == names


def test_the_list_is_whole() -> None:
    listed = tomllib.loads(LIST.read_text())
    names = [row["name"] for row in listed["names"]]
    assert len(set(names)) == len(names)
    found: set[str] = set()
    for folder in ("src", "ext"):
        for path in sorted((REPOSITORY / "julia" / folder).rglob("*.jl")):
            found |= used(path.read_text())
    assert found == set(names)
    assert f"Reactant {REACTANT} " in LIST.read_text()
    for row in [*listed["names"], *listed["uses"]]:
        assert row["file"].endswith(".jl")
        assert row["text"].strip()
