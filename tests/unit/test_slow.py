"""The slow tests, and what stands for them in `make test`, exist."""

import re

import pytest

from tests.harness import REPOSITORY
from tests.slow import SLOW, is_slow

FILES = {
    str(path.relative_to(REPOSITORY / "tests")): path.read_text()
    for path in (REPOSITORY / "tests").rglob("test_*.py")
}


@pytest.mark.parametrize("name", SLOW)
def test_it_and_what_shows_the_same_exist(name: str) -> None:
    path, function = name.removeprefix("tests/").split("::")
    assert f"def {function.partition('[')[0].rstrip('*')}" in FILES[path]
    text = SLOW[name]
    for file in re.findall(r"[\w/]*test_\w+\.py", text):
        assert any(path == file or path.endswith(f"/{file}") for path in FILES), file
    for function in re.findall(r"\btest_\w+\b(?!\.py)", text):
        (path,) = [path for path, code in FILES.items() if f"def {function}(" in code]
        assert not is_slow(f"tests/{path}::{function}")
