"""What all report pages have in common: well formed, escaped, accessible, without scripts."""

import re
from itertools import pairwise

import pytest

from pyreactant.base.document.page import fragment
from pyreactant.base.document.parts import Cell, Table
from tests.harness import REPOSITORY
from tests.pages.outline import Outline
from tests.pages.samples import REPORTS, html_of, new_html, plan

STYLE = (REPOSITORY / "pyreactant/base/document/templates/style.css").read_text()


@pytest.mark.parametrize("name", REPORTS)
def test_well_formed_and_self_contained(name: str) -> None:
    outline = Outline(html_of(name))
    assert outline.stack == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert set(outline.references) <= set(outline.ids)
    assert not re.search(r"(src|href)=\"(?!#)", html_of(name))
    assert "http" not in re.sub("http-equiv", "", html_of(name))
    forbidden = {"script", "link", "img", "iframe", "object"}
    assert {tag for tag, _ in outline.tags} & forbidden == set()
    assert "default-src &#39;none&#39;" in html_of(name) or "default-src 'none'" in html_of(name)


@pytest.mark.parametrize("name", REPORTS)
def test_names_cannot_become_tags(name: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html_of(name)
    assert new_html(name) == html_of(name)  # the same report gives the same page


@pytest.mark.parametrize("name", REPORTS)
def test_for_screen_readers(name: str) -> None:
    outline = Outline(html_of(name))
    assert ("html", {"lang": "en"}) in outline.tags
    for tag, attributes in outline.tags:
        if tag == "th":
            assert attributes.get("scope") in ("col", "row", "colgroup")
        if tag == "svg" or attributes.get("class") == "bar":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
        if tag == "table" and attributes.get("class") == "cards":
            assert attributes["role"] == "table"
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    # A sign and a word repeat what a colour shows.
    marks = re.findall(
        r'class="mark is-\w+"><span class="icon" aria-hidden="true">(.)</span>(.*?)</span></span>',
        html_of(name),
    )
    assert len(marks) == html_of(name).count('class="mark ')
    assert all(sign.strip() and text for sign, text in marks)


def test_facts_of_a_preflight() -> None:
    page = html_of("preflight")
    for text in (
        "It needs 17.1 GiB of 31.2 GiB on each device (54.8 %).",
        'aria-label="17.1 GiB of 31.2 GiB are used"',
        'data-label="bytes of it" class="number">128 MiB<',
        'data-label="along" class="words">a part of x<',
        'data-label="runs" class="number">in a loop<',
    ):
        assert text in page
    assert page.count("</i>") - page.count('class="share"') == 2 * 4  # four parts and a legend
    refused = html_of("refused")
    assert "it needs 96 GiB, and a device has 31.2 GiB" in refused
    assert "--spec x,None fits: 12 GiB" in refused
    assert "No collectives" not in refused  # nobody knows
    assert "Same collectives" in html_of("difference")


def test_facts_of_a_plan() -> None:
    page = plan().to_html()
    assert "1.1 ms. 1 takes 0.34 of the time of R, the default layout of matmul_sharded." in page
    assert page.count("&gt; 2.4 ms") == 1  # only a lower bound
    assert "<pre>pyreactant matmul --size 512 " in page
    assert "it needs 96 GiB of 31 GiB" in html_of("failed-plan")
    assert "<pre>" not in html_of("failed-plan")


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
    grounds = ("paper", "card")
    texts = [(text, ground) for text in ("ink", "muted", "link") for ground in grounds]
    for look in ("good", "bad", "warn"):
        texts += [(look, "paper"), (look, "card"), (look, f"{look}-card")]
        texts += [("muted", f"{look}-card"), ("ink", f"{look}-card")]
    for text, ground in texts:
        assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for number in range(1, 6):
        assert _contrast(colours[f"series-{number}"], colours["card"]) >= 3


def test_a_table_of_cells() -> None:
    table = Table(
        "caption",
        ["name", "result", "share"],
        [
            [
                Cell("a.b_c:<d", link="there"),
                Cell("right", "good"),
                Cell("0.5", share=0.5, detail="<b>"),
            ]
        ],
        numbers=(2,),
        groups=[("", 1), ("jax", 2)],
        left_out=7,
    )
    page = fragment(Cell("x"), table)
    assert Outline(page).stack == []
    for text in (
        '<a href="#there">a.<wbr>b_<wbr>c:&lt;<wbr>d</a>',
        '<th scope="colgroup" role="columnheader" colspan="2">jax</th>',
        'data-label="jax" class="words first"',  # names the column where titles are not shown
        'data-label="share" class="number"',
        "width:50.0%",
        "&lt;b&gt;",
        "and 7 more",
    ):
        assert text in page
