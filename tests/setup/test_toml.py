"""An edit of valid TOML changes the value and keeps every other character."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import example, given
from hypothesis import strategies as st
from tomlkit.exceptions import TOMLKitError

from pyreactant.base.errors import FileError
from pyreactant.julia import preferences
from pyreactant.julia.preferences import REACTANT, copies, edits, find

BARE = st.text("abcXYZ09_-", min_size=1, max_size=6)
CHARACTERS = st.characters(
    codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\"'\\\\"
)
QUOTED = st.text(CHARACTERS, max_size=6).map(lambda text: f'"{text}"')
LITERAL = st.text(CHARACTERS, max_size=6).map(lambda text: f"'{text}'")
KEY = st.one_of(BARE, QUOTED, LITERAL)
DOTTED = st.lists(KEY, min_size=1, max_size=3).map(" . ".join)
SCALAR = st.one_of(
    QUOTED,
    LITERAL,
    st.sampled_from(
        [
            "1",
            "-0",
            "+1_000",
            "0xdead",
            "0o7",
            "0b1",
            "1.5",
            "-1e-3",
            "inf",
            "nan",
            "true",
            "false",
            "1979-05-27T07:32:00Z",
            "1979-05-27 07:32:00.5",
            "1979-05-27",
            "07:32:00",
            '"""a\n"b" \\\n  c"""',
            "'''\n# no comment\n[no table]\n'''",
            '"\\u00e9\\t\\""',
        ]
    ),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(inner, max_size=2).map(lambda items: "[ # why\n" + ",\n".join(items) + "\n]"),
        st.dictionaries(BARE, inner, max_size=2).map(
            lambda table: "{ " + ", ".join(f"{k} = {v}" for k, v in table.items()) + " }"
        ),
    ),
    max_leaves=5,
)
SPACE = st.sampled_from(["", " ", "\t", "  "])
COMMENT = st.sampled_from(["", " # why", "#", "  # ☃ = [table]"])
PAIR = st.builds("{}{} ={}{}{}\n".format, SPACE, DOTTED, SPACE, VALUE, COMMENT)
HEADER = st.builds("{}[{}]{}\n".format, SPACE, DOTTED, COMMENT)
MANY = st.builds("[[{}]]{}\n".format, DOTTED, COMMENT)
OURS = st.sampled_from(
    [
        "[Reactant]\n",
        "[Reactant] # ours\n\n",
        '[Reactant]\nxla_runtime = "PJRT"\n',
        "[Reactant]\n  'xla_runtime'='PJRT'# why\nother = 3\n",
        '[Reactant.sub]\na = "b"\n',
        'Reactant.xla_runtime = "PJRT" # dotted\n',
        'Reactant = { xla_runtime = "PJRT", a = 1 }\n',
        '"Reactant" = {}\n',
        "[ Reactant . sub . sub ]\n",
        '[Reactant]\n__clear__ = ["gpu"]\n',
    ]
)
BLANK = st.sampled_from(["\n", "# a comment\n", "   \n"])
LINES = st.lists(st.one_of(PAIR, HEADER, MANY, OURS, BLANK), max_size=12).map("".join)
ENDS = st.sampled_from(["", "\n", "# the end, and no line end"])
TEXT = st.builds("{}{}".format, LINES, ENDS)


TOO_MUCH_FOR_TOMLKIT = "[[a.b]]\n[Reactant]\n[a.b.c]\n[[a.b]]\n"
"""Valid TOML, but tomlkit takes the second [[a.b]] for a key that is defined twice."""


def parsed(text: str) -> dict[str, Any] | None:
    """The content of a text; None if it is not TOML, or tomlkit cannot read it."""
    try:
        tomlkit.parse(text)
        return tomllib.loads(text)
    except (TOMLKitError, tomllib.TOMLDecodeError):
        return None


@given(text=TEXT, windows=st.booleans(), value=st.sampled_from(["IFRT", "PJRT"]))
@example(text="a.b = 1\n[c]", windows=False, value="IFRT")
@example(text="[[a]]\nb=1", windows=True, value="IFRT")
@example(text="[Reactant.sub]\n[other]\n[Reactant]\n", windows=False, value="IFRT")
def test_set_and_unset_among_anything(
    text: str, windows: bool, value: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = parsed(text)
    if before is None or not isinstance(before.get("Reactant", {}), dict):
        return  # about half of the texts are not TOML; another test covers refused edits
    project = tmp_path_factory.mktemp("project")
    local = project / "LocalPreferences.toml"
    local.write_bytes(text.replace("\n", "\r\n" if windows else "\n").encode())
    before = tomllib.loads(local.read_bytes().decode())
    apply(edits(project, {"xla_runtime": value}))
    expected = {**before, "Reactant": {**before.get("Reactant", {}), "xla_runtime": value}}
    assert preferences.same_toml(tomllib.loads(local.read_bytes().decode()), expected)
    assert find("xla_runtime", (project,)).value == value
    assert comments(local.read_bytes().decode()) == comments(text)
    apply(edits(project, {"xla_runtime": None}))
    del expected["Reactant"]["xla_runtime"]
    after = tomllib.loads(local.read_bytes().decode())
    assert preferences.same_toml(after, expected) or preferences.same_toml(
        {**after, "Reactant": {}}, expected
    )


@given(text=TEXT)
def test_a_project_names_the_package_among_anything(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = parsed(text)
    sections = ("deps", "extras", "weakdeps")
    if before is None or not all(isinstance(before.get(s, {}), dict) for s in sections):
        return
    project = tmp_path_factory.mktemp("project")
    (project / "Project.toml").write_bytes(text.encode())
    apply(edits(project, {"xla_runtime": "IFRT"}))
    after = tomllib.loads((project / "Project.toml").read_bytes().decode())
    assert after.pop("extras")[REACTANT.name] == REACTANT.uuid
    before.pop("extras", None)
    assert preferences.same_toml(after, before)
    assert find("xla_runtime", (project,)).value == "IFRT"


@given(text=TEXT)
def test_what_a_project_says_is_kept(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole_file = parsed(f'[deps]\nReactant = "{REACTANT.uuid}"\n[preferences.Reactant]\n{text}')
    if whole_file is None:
        return
    project = tmp_path_factory.mktemp("project")
    named = f'[deps]\nReactant = "{REACTANT.uuid}"\n[preferences.Reactant]\n{text}'
    (project / "Project.toml").write_bytes(named.encode())
    apply(copies(project))
    local = project / "LocalPreferences.toml"
    found = tomllib.loads(local.read_bytes().decode()) if local.exists() else {}
    assert preferences.same_toml(found.get("Reactant", {}), whole_file["preferences"]["Reactant"])


@given(data=st.one_of(st.binary(max_size=60), TEXT.map(str.encode)))
def test_what_is_no_toml_is_refused_with_its_line(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("project") / "LocalPreferences.toml"
    path.write_bytes(data)
    try:
        preferences.load_toml(path)
    except FileError as error:
        line = int(str(error).removeprefix(f"{path}, line ").split(":")[0])
        assert 1 <= line <= data.count(b"\n") + 1


def test_what_cannot_be_edited_is_left(tmp_path: Path) -> None:
    """If tomlkit would change something else, the edit raises and the file stays."""
    path = tmp_path / "LocalPreferences.toml"

    def change(document: Any) -> None:
        if not isinstance(document, dict) or hasattr(document, "as_string"):
            document["other"] = 1
        document["key"] = 1

    with pytest.raises(FileError, match="write it by hand: key"):
        preferences.edit_toml(path, "", change, "key")


def test_what_tomlkit_cannot_read_is_left(tmp_path: Path) -> None:
    """The edit of valid TOML is refused."""
    assert tomllib.loads(TOO_MUCH_FOR_TOMLKIT)
    assert parsed(TOO_MUCH_FOR_TOMLKIT) is None
    (tmp_path / "LocalPreferences.toml").write_text(TOO_MUCH_FOR_TOMLKIT)
    with pytest.raises(FileError, match="write it by hand: xla_runtime under"):
        edits(tmp_path, {"xla_runtime": "IFRT"})


def apply(changes: dict[Path, str]) -> None:
    for path, text in changes.items():
        path.write_bytes(text.encode())


def comments(text: str) -> list[str]:
    return sorted(line.strip() for line in text.splitlines() if line.strip().startswith("#"))
