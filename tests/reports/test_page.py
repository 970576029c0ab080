"""The page as text: nothing but itself, everything escaped, every figure explained."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from maskreg.flow.overlap.measure import NamedMask
from maskreg.reports.findings import Findings, gather
from maskreg.reports.page import page, plots_of, slug
from maskreg.reports.pictures import Plot, svg
from maskreg.reports.theme import LIGHT, THEMES
from maskreg.words import times
from tests.reports.conftest import EVIL

VOID = {"meta", "link", "br", "wbr", "input", "img"}


class Parsed(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


def test_it_needs_nothing_but_itself(html: str) -> None:
    parsed = Parsed(html)
    assert not {tag for tag, _ in parsed.tags} & {"script", "iframe", "object", "embed", "img", "base", "form"}
    addresses = [a for name in ("href", "src", "srcset", "xlink:href", "action") for a in parsed.all(name)]
    assert addresses
    assert [a for a in addresses if not a.startswith(("#", "data:"))] == []
    styles = "".join(parsed.all("style")) + html
    assert not re.search(r"@import|url\((?!#)", styles)
    assert not [key for _, attributes in parsed.tags for key in attributes if key.startswith("on")]


def test_identifiers_are_unique_and_every_link_leads_somewhere(html: str) -> None:
    parsed = Parsed(html)
    ids = parsed.all("id")
    assert len(ids) == len(set(ids))
    links = [a[1:] for name in ("href", "xlink:href") for a in parsed.all(name) if a.startswith("#")]
    labels = [part for text in parsed.all("aria-labelledby") for part in text.split()]
    clips = re.findall(r"url\(#([^)]*)\)", html)
    assert set(links) | set(labels) | set(clips) <= set(ids)
    assert clips


def test_what_comes_from_artifacts_is_text(html: str) -> None:
    assert "<script" not in html
    texts = "".join(Parsed(html).texts)
    assert f"{EVIL}.weight" in texts  # in the table of what is outside the layers
    assert texts.count(EVIL) >= 3  # in the card and in a note, too
    assert "private-name" not in texts


def test_the_figures_of_the_artifact_are_on_it(found: Findings, html: str) -> None:
    texts = " ".join(" ".join(Parsed(html).texts).split())
    assert str(found.digest) in texts
    assert found.manifest.source.root in texts
    assert f"{found.manifest.totals.nnz:,} of {found.manifest.totals.numel:,} coordinates" in texts
    overlap = found.others[0].overlap.whole.overlap
    assert times(overlap.lift) in texts
    assert found.others[0].verdict.sentence in texts
    assert re.search(r"\b5\.30\b.*\b65\.3\b", texts)


def test_every_plot_has_its_numbers_as_a_table(found: Findings, html: str) -> None:
    tables = re.findall(r'<details class="numbers">\n<summary>(.*?)</summary>.*?</details>', html, re.DOTALL)
    assert tables == ["Table of this plot"] * sum(not plot.element for plot in plots_of(found).values()) + ["By tensor"]
    for plot in plots_of(found).values():
        assert len(plot.numbers.rows) > 1
        assert {len(row) for row in plot.numbers.rows} == {len(plot.numbers.columns)}
        table = [list(row) for row in (plot.numbers.columns, *plot.numbers.rows)]
        kept = list(csv.reader(plot.numbers.csv().splitlines()))
        assert (kept[0], [len(row) for row in kept]) == (table[0], [len(row) for row in table])
        if plot.name == "density":
            assert kept[1][1] == str(found.grid.cells[kept[1][0], kept[0][1]].density)
        # Without what is escaped, and formulas.
        bare = re.sub(r"\\(?:[&%$#_{}]|text\w+\{\})|\$(-|\^\{-?\d+\})\$", "", plot.numbers.latex())
        cells = [line.split("&") for line in bare.splitlines() if line.endswith(r"\\")]
        assert [len(row) for row in cells] == [len(row) for row in table]
        assert not re.search(r"[%$#_−¹²³⁰-⁻]", bare)
    # A difference of shares is in points; percent would read as a ratio.
    assert plots_of(found)["exponents"].numbers.rows[1][-1].endswith(" points")


def test_the_same_findings_give_the_same_bytes(found: Findings, plots: dict[str, Plot], html: str) -> None:
    assert page(found, "1.2.3", plots) == html
    assert all(svg(plot, LIGHT) == svg(plots[name], LIGHT) for name, plot in plots_of(found).items())
    assert not re.search(r"20\d\d-\d\d-\d\d", html)


def test_without_a_source_it_says_what_is_missing(masks: tuple[NamedMask, NamedMask]) -> None:
    found = gather(masks[0], masks[1:])
    assert set(plots_of(found)) == {"density", "overlap-1"}
    alone = gather(masks[0])
    assert set(plots_of(alone)) == {"density"}
    assert page(alone, "1.2.3")


def test_pictures_are_svg_whose_words_are_words(plots: dict[str, Plot]) -> None:
    for plot in plots.values():
        for theme in THEMES:
            drawn = svg(plot, theme)
            root = ET.fromstring(drawn)
            assert root.tag.endswith("svg")
            assert not re.search(r"20\d\d-\d\d-\d\d", drawn)
            assert "".join(root.itertext()).strip()
    names = "".join(ET.fromstring(svg(plots["density"], LIGHT)).itertext())
    assert "$\\frac{1}{2}$" in names


@pytest.mark.parametrize(
    ("name", "beginning"), [("team/opd:v1", "team-opd-v1"), ("../../x y", "x-y"), ("<>", "maskreg")]
)
def test_names_of_files_are_harmless(name: str, beginning: str) -> None:
    assert slug(name) == beginning
