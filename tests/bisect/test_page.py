"""The session of docs/bisect.md, run as it is written."""

import json
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.docs.session import Session
from tests.harness import REPOSITORY, environment


@pytest.mark.slow
def test_the_session_of_the_page(tmp_path: Path) -> None:
    tools = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    reader = Session(tmp_path, environment(PATH=tools, COLUMNS="200", XLA_FLAGS=""), sys.executable)
    program, command, printed = list(blocks(REPOSITORY / "docs" / "bisect.md"))[:3]
    reader.write(program)
    reader.run(["bash", "-c", command.code.removeprefix("$ ")], command)
    result = json.loads((tmp_path / "bisect" / "bisect.json").read_text())
    assert result["complete"]
    assert result["operations"] == ["stablehlo.compare"]
    assert f"operations  1 of {result['operations_of']}: stablehlo.compare" in printed.code
    assert "stablehlo.compare NE" in (tmp_path / "bisect" / "report.md").read_text()
    assert (result["got"], result["right"]) == ("False", "True")
