"""Errors as data: what a child process says is what its caller raises."""

import json
import os
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.base.child import Activity, ask_child
from pyreactant.base.errors import (
    FileError,
    PortTakenError,
    PyReactantError,
    RequirementError,
    as_data,
    from_data,
    kind_of,
)
from tests.harness import REPOSITORY


@pytest.mark.parametrize(
    "error",
    [
        RequirementError("x is absent", "pip install x", advice="install it with"),
        RequirementError("x is absent"),
        FileError("no file"),
        PortTakenError("a port"),
        pr.DeadlineError("late"),
        PyReactantError("wrong"),
    ],
)
def test_an_error_comes_back_as_it_was(error: PyReactantError) -> None:
    back = from_data(json.loads(json.dumps(as_data(error))))
    assert (type(back), str(back)) == (type(error), str(error))
    assert vars(back) == vars(error)


def test_what_only_the_other_process_knows_is_an_error_still() -> None:
    remote = pr.RemoteError("job 1 failed", kind="ValueError")
    assert str(from_data(as_data(remote))) == "job 1 failed"
    assert kind_of("RemoteError") is kind_of("NewError") is PyReactantError
    unknown = from_data({"kind": "NewError", "words": ["new"]})
    assert (type(unknown), str(unknown)) == (PyReactantError, "new")


def test_a_kind_that_only_one_module_knows_comes_back_as_the_nearest_one() -> None:
    class HiddenError(FileError): ...

    back = from_data(as_data(HiddenError("no file")))
    assert (type(back), str(back), back.exit_code) == (FileError, "no file", 2)


def test_the_command_for_what_a_child_lacks_reaches_the_caller(tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'optree'\", name='optree')"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    with pytest.raises(RequirementError, match="needs the package optree") as caught:
        ask_child("lacking", environment, {}, timeout=100, activity=Activity("a", "b", "c"))
    assert caught.value.command == "python -m pip install optree"
    assert str(caught.value).endswith("install it with: python -m pip install optree")
