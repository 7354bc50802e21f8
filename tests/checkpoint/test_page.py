"""The loop and the commands of docs/state.md."""

import dataclasses
import re
from pathlib import Path

from tests.docs.pages import blocks
from tests.docs.test_pages import session
from tests.harness import REPOSITORY


def test_the_first_blocks(tmp_path: Path) -> None:
    """They print what the page shows; times and sizes in the list of steps are those of the run."""
    program, commands = list(blocks(REPOSITORY / "docs" / "state.md"))[:2]
    (tmp_path / "train.py").write_text(program.code)
    reader = session(tmp_path)
    reader.settings = {**reader.settings, "PYREACTANT_PLATFORM": "cpu"}
    shown, changed = re.subn(r"  20\d\d-.* kB  ", "  ...  ", commands.code)
    assert changed == 1
    reader.follow(dataclasses.replace(commands, code=shown, note=""))
