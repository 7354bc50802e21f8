"""What stands for a slow test in `make test` exists."""

import re

import pytest

from tests.harness import REPOSITORY
from tests.slow import SLOW, pattern_of

FILES = {
    str(path.relative_to(REPOSITORY / "tests")): path.read_text()
    for path in (REPOSITORY / "tests").rglob("test_*.py")
}


@pytest.mark.parametrize("name", SLOW)
def test_what_shows_the_same_exists(name: str) -> None:
    text = SLOW[name]
    assert text
    for file in re.findall(r"[\w/]*test_\w+\.py", text):
        assert any(path == file or path.endswith(f"/{file}") for path in FILES), file
    for function in re.findall(r"\btest_\w+\b(?!\.py)", text):
        (path,) = [path for path, code in FILES.items() if f"def {function}(" in code]
        assert pattern_of(f"tests/{path}::{function}") is None, "it is slow, too"
