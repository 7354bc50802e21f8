"""The pages in a real browser: all widths in one start, then in dark mode with an intruder."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.harness import require
from tests.pages.samples import REPORTS, html_of

Browse = Callable[..., tuple[str, str]]
WIDTHS = (360, 800, 1400)

MEASURE = """<script>
document.querySelectorAll("details").forEach(d => { d.open = true; });
const wide = e => e.getBoundingClientRect().right > window.innerWidth + 1;
const inside = e => !e.parentElement.closest(".scroll") && !e.closest("svg *");
const words = e => {
  const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), found = [];
  const word_of = /(?<!\\S)\\w{2,24}(?!\\S)/g;  // a longer one may have to break
  while (walk.nextNode()) for (const word of walk.currentNode.data.matchAll(word_of)) {
    const range = new Range();
    range.setStart(walk.currentNode, word.index);
    range.setEnd(walk.currentNode, word.index + word[0].length);
    found.push(range);
  }
  return found;
};
const broken = range => new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1;
const all = [...document.querySelectorAll("body *")];
const sizes = all.filter(e => e.innerText).map(e => parseFloat(getComputedStyle(e).fontSize));
parent.postMessage(JSON.stringify({
  name: document.location.hash.slice(1), page: document.documentElement.scrollWidth,
  window: window.innerWidth, smallest: Math.min(...sizes),
  empty: [...document.querySelectorAll("svg, .bar")].map(s => s.getBoundingClientRect())
    .filter(b => b.width < 30 || b.height < 10).length,
  outside: all.filter(e => inside(e) && wide(e)).map(e => e.outerHTML.slice(0, 80)),
  clipped: [...document.querySelectorAll(".scroll")]
    .filter(e => !e.querySelector(".mesh") && e.scrollWidth > e.clientWidth + 1)
    .map(e => e.ariaLabel),
  broken: [...document.querySelectorAll("table th")].flatMap(words).filter(broken).map(String),
  paper: getComputedStyle(document.body).backgroundColor,
}), "*");</script>"""


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page in Chromium without network; return its DOM and its console messages."""
    chromium = shutil.which("chromium")
    require(chromium, "chromium (apt-get install chromium)")

    def open_page(page: str, *options: str) -> tuple[str, str]:
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
                "--window-size=1600,900",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--enable-logging=stderr",
                "--dump-dom",
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


def framed(folder: Path, widths: tuple[int, ...]) -> str:
    """A page that shows all pages in frames of these widths, all parts open, and measures them.

    Frames are needed because Chromium's windows are at least 500 pixels wide. The script belongs
    to the test; a page has no script and forbids them.
    """
    frames = []
    for name in REPORTS:
        allowed = re.sub("<meta http-equiv[^>]*>", "", html_of(name))
        (folder / f"{name}.html").write_text(allowed.replace("</body>", f"{MEASURE}</body>"))
        frames += [
            f'<iframe src="{name}.html#{name}" width="{n}" height="900"></iframe>' for n in widths
        ]
    return f"""<!doctype html><pre id="measured"></pre><script>
        onmessage = e => {{ document.getElementById("measured").textContent += e.data + "\\n"; }};
        </script>{"".join(frames)}"""


def measured(dom: str) -> list[dict[str, Any]]:
    (text,) = re.findall('<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    return [json.loads(line) for line in unescape(text).splitlines()]


@pytest.mark.slow
def test_every_page_fits_every_screen(browse: Browse, tmp_path: Path) -> None:
    dom, messages = browse(framed(tmp_path, WIDTHS), "--blink-settings=preferredColorScheme=1")
    assert messages == ""
    found = measured(dom)
    assert {(f["name"], f["window"]) for f in found} == {(n, w) for n in REPORTS for w in WIDTHS}
    for frame in found:
        assert frame["outside"] == [], (frame["name"], frame["window"])
        assert frame["page"] <= frame["window"], frame
        assert frame["empty"] == 0, frame
        if frame["window"] != WIDTHS[1]:  # on a tablet the widest table scrolls by itself
            assert frame["clipped"] == [], (frame["name"], frame["window"])
        assert frame["broken"] == [], (frame["name"], frame["window"])
        assert frame["smallest"] >= 11, frame
        assert frame["paper"] == "rgb(255, 255, 255)"


def test_dark_and_closed_to_scripts(browse: Browse, tmp_path: Path) -> None:
    """The name or log of a program cannot run code in the page, even if escaping fails."""
    intruders = '<script>document.title = 1</script><img src="http://127.0.0.1:9/a.png">'
    (tmp_path / "intruded.html").write_text(
        html_of("crosscheck").replace("</main>", f"{intruders}</main>")
    )
    page = framed(tmp_path, (800,)) + '<iframe src="intruded.html"></iframe>'
    dom, messages = browse(page, "--blink-settings=preferredColorScheme=0")
    assert {frame["paper"] for frame in measured(dom)} == {"rgb(18, 23, 29)"}
    assert messages.count("Content Security Policy") == 2, messages
    assert "127.0.0.1:9" in messages
