"""The HTML page: in a real browser, for a screen reader, on narrow screens, in dark mode."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pyreactant as pr
from pyreactant import RequirementError
from pyreactant.crosscheck._records.verdict import ArrayPlan, Kind
from pyreactant.crosscheck._report.figures import grid, placement
from pyreactant.crosscheck._report.html import STYLE
from pyreactant.crosscheck._report.report import Report
from tests.crosscheck.samples import blocks, report
from tests.harness import require

pytest.importorskip("matplotlib")
NAMES = ["matmul", "softmax", "pkg.my_module:a_program_with_a_long_name", "heat", "fft"]


@pytest.fixture(scope="module")
def good() -> str:
    return report(NAMES).to_html()


@pytest.fixture(scope="module")
def bad() -> str:
    return report(NAMES, wrong=[5, 6]).to_html()


Browse = Callable[..., tuple[str, str]]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page in Chromium without network; return its DOM and its console messages."""
    chromium = shutil.which("chromium")
    require(chromium, "chromium (apt-get install chromium)")

    def open_page(page: str, width: int, *options: str) -> tuple[str, str]:
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        ran = subprocess.run(
            [
                str(chromium),
                "--headless",
                *sandbox,
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={width},900",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--enable-logging=stderr",
                *options,
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        messages = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
        return ran.stdout, "\n".join(messages)

    return open_page


MEASURE = """<script>
document.querySelectorAll("details").forEach(d => { d.open = true; });
const boxes = [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect());
const texts = [...document.querySelectorAll("svg text")].map(t => t.getBoundingClientRect());
const wide = e => e.getBoundingClientRect().right > window.innerWidth + 1;
const inside = e => !e.parentElement.closest(".scroll") && !e.closest("svg svg, svg *");
parent.postMessage(JSON.stringify({
  page: document.documentElement.scrollWidth, window: window.innerWidth,
  pictures: boxes.length, empty: boxes.filter(b => b.width < 100 || b.height < 50).length,
  smallest: Math.min(...texts.map(t => t.height)),
  outside: [...document.querySelectorAll("body *")].filter(e => inside(e) && wide(e))
    .map(e => e.outerHTML.slice(0, 80)),
}), "*");</script>"""


WIDTHS = (360, 800, 1400)


def measured(page: str, folder: Path) -> str:
    """Show the page in frames of these widths, with all parts open, and measure it.

    Frames are needed because Chromium's windows are at least 500 pixels wide. The script belongs
    to the test; the page has no script and forbids them.
    """
    allowed = re.sub("<meta http-equiv[^>]*>", "", page)
    (folder / "framed.html").write_text(allowed.replace("</body>", f"{MEASURE}</body>"))
    frames = (f'<iframe src="framed.html" width="{n}" height="900"></iframe>' for n in WIDTHS)
    return f"""<!doctype html><pre id="measured"></pre><script>
        onmessage = e => {{ document.getElementById("measured").textContent += e.data + "\\n"; }};
        </script>{"".join(frames)}"""


def test_console_says_nothing_and_the_pictures_are_there(browse: Browse, bad: str) -> None:
    dom, messages = browse(bad, 1400, "--dump-dom")
    assert messages == ""
    # Three pictures of all programs, and one per runtime of each program.
    assert dom.count("<svg") == 3 + 2 * len(NAMES)
    assert "Did not pass" in dom


def test_fits_the_screen(browse: Browse, bad: str, tmp_path: Path) -> None:
    dom, messages = browse(measured(bad, tmp_path), 1600, "--dump-dom")
    assert messages == ""
    (text,) = re.findall('<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    frames = [json.loads(line) for line in unescape(text).splitlines()]
    assert sorted(found["window"] for found in frames) == list(WIDTHS)
    for found in frames:
        assert found["page"] <= found["window"], found["outside"]
        assert found["outside"] == []
        assert found["pictures"] == 3 + 2 * len(NAMES)
        assert found["empty"] == 0
        assert found["smallest"] > 7  # pixels


def test_a_policy_forbids_scripts_and_requests(browse: Browse, good: str) -> None:
    """The name or log of a program cannot run code in the page, even if escaping fails."""
    intruders = '<script>document.title = 1</script><img src="http://127.0.0.1:9/a.png">'
    _, messages = browse(good.replace("</main>", f"{intruders}</main>"), 800, "--dump-dom")
    assert messages.count("Content Security Policy") == 2, messages
    assert "127.0.0.1:9" in messages


def test_light_and_dark(browse: Browse, good: str, tmp_path: Path) -> None:
    from matplotlib.image import imread

    bright = {}
    for name, scheme in (("dark", 0), ("light", 1)):
        shot = tmp_path / f"{name}.png"
        browse(good, 800, f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={shot}")
        bright[name] = float(imread(shot)[..., :3].mean())
    assert bright["dark"] < 0.3
    assert bright["light"] > 0.8


class Outline(HTMLParser):
    """Collect open tags, ids and references of a page."""

    VOID = ("meta", "br", "link", "img", "hr", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag not in self.VOID:
            self.stack.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        self.references += (found.get("aria-labelledby") or "").split()
        if (found.get("href") or "").startswith("#"):
            self.references.append(str(found["href"])[1:])
        self.references += re.findall(r"url\(#([^)]*)\)", " ".join(map(str, found.values())))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def test_well_formed_and_all_references_lead_somewhere(bad: str) -> None:
    outline = Outline(bad)
    assert outline.stack == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert set(outline.references) <= set(outline.ids)
    assert not re.search(r"(src|href)=\"(?!#)", bad)
    assert "http" not in re.sub("http-equiv", "", bad)
    assert {tag for tag, _ in outline.tags} & {"script", "link", "img", "iframe", "object"} == set()


def test_for_screen_readers(bad: str) -> None:
    outline = Outline(bad)
    assert ("html", {"lang": "en"}) in outline.tags
    for tag, attributes in outline.tags:
        if tag == "th":
            assert attributes.get("scope") in ("col", "row")
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(str(attributes["aria-labelledby"]).split()) == 2
    count = {tag: sum(t == tag for t, _ in outline.tags) for tag in ("svg", "desc", "figcaption")}
    assert count["svg"] == count["desc"] == count["figcaption"]
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    # A sign and a word repeat what a colour shows.
    assert bad.count("is-bad") <= bad.count("✗") + bad.count('<p class="is-bad">') + STYLE.count(
        "is-bad"
    )


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, two: str) -> float:
    high, low = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast(theme: int) -> None:
    """WCAG 2.2 requires a contrast of 4.5 for text and 3 for parts of pictures."""
    block = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    for text in ("ink", "muted", "good", "bad", "warn", "link"):
        for ground in ("paper", "card"):
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for text, ground in (
        ("good", "good-card"),
        ("bad", "bad-card"),
        ("muted", "good-card"),
        ("muted", "bad-card"),
        ("ink", "bad-card"),
    ):
        assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for number in range(1, 5):
        assert _contrast(colours[f"series-{number}"], colours["card"]) >= 3


def test_the_same_report_gives_the_same_page(good: str) -> None:
    assert report(NAMES).to_html() == good


def test_text_is_escaped(good: str) -> None:
    assert "a log with &lt;tags&gt; &amp; signs" in good
    assert "--xla_a=&lt;1&gt;" in good
    assert "<tags>" not in good


def test_what_is_on_it(good: str, bad: str) -> None:
    for messages in (
        "Passed",
        "reactant was not available",
        "run: pyreactant setup",
        "0123456789ab, 2 fil",
        "2 on one, two",
        "8: cpu (cpu)",
        "process 1",
        "It printed nothing",
        "0.12.0",
    ):
        assert messages in good
    assert "What is wrong" not in good
    assert "matmul on stand-in: transposed block: process 0, device 5" in bad
    assert re.search(r'<details id="program-0" open>', bad)
    assert 'id="program-1" open' not in bad


def test_a_report_without_pictures_has_a_page() -> None:
    """If nothing ran, no program has blocks and no runtime has devices."""
    empty = Report((), (), {"jax": "install it"}, "2026-01-02T03:04:05+00:00")
    assert "Did not pass" in empty.to_html()
    assert "Nothing was checked" in empty.to_html()


def test_for_notebooks(bad: str) -> None:
    text = report(NAMES, wrong=[5])._repr_html_()
    assert Outline(text).stack == []
    assert "wrong: transposed block" in text


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    with pytest.raises(RequirementError, match="matplotlib, which draws the pictures"):
        report(NAMES).to_html()


SHAPES = [
    (pr.Mesh((8,), ("data",)), (16, 4), ("data",)),
    (pr.Mesh((2, 2, 2), ("x", "y", "z")), (8, 8, 8), ("x", "y", "z")),
    (pr.Mesh((2, 2, 2), ("x", "y", "z")), (64,), (("x", "y", "z"),)),
    (pr.Mesh((2, 4), ("x", "y")), (), ()),
    (pr.Mesh((2, 4), ("x", "y")), (0, 8), ("x",)),
    (pr.Mesh((8, 16), ("x", "y")), (256, 256), ("x", "y")),
    (pr.Mesh((1,), ("x",)), (3,), ()),
]


@pytest.mark.parametrize(("mesh", "shape", "spec"), SHAPES, ids=str)
def test_pictures_of_any_mesh(mesh: pr.Mesh, shape: tuple[int, ...], spec: Any) -> None:
    plan = ArrayPlan(shape, "float32", pr.NamedSharding(mesh, spec))
    (row,) = report(["heat"], ["jax"]).rows
    good = blocks(plan, 0.5)
    nowhere = replace(good[0], index=None, passed=False, kinds=(Kind.FEWER_DEVICES,))
    elsewhere = replace(good[-1], index=good[0].index, passed=False, ratio=float("inf"))
    for found in (
        good,
        (nowhere, *good[1:]),
        (*good[:-1], elsewhere),
        good[1:],
        (replace(good[0], expected_index=None, passed=False), *good[1:]),
    ):
        result = replace(row.results[0], blocks=found)
        drawn = placement(replace(row, plans={"output 0": plan}), result, 3)
        if not found:
            assert drawn == []
            continue
        (picture,) = drawn
        assert len(picture.rows) == len(found)
        assert Outline(picture.svg).stack == []
        assert "nan" not in picture.svg


def test_grids_of_any_number_of_axes() -> None:
    assert grid(()) == (1, 1)
    assert grid((8,)) == (8, 1)
    assert grid((2, 4)) == (2, 4)
    assert grid((2, 3, 4)) == (6, 4)
