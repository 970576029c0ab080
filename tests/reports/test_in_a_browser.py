"""The page as people see it: opened at the size of a laptop, by day and by night."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from maskreg.reports.findings import Findings
from maskreg.reports.page import plots_of
from tests.browser import CONTRASTS, LAPTOP, Opened

GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}


@pytest.fixture
def path(html: str, tmp_path: Path) -> Path:
    place = tmp_path / "report.html"
    place.write_text(html, encoding="utf-8")
    return place


def drawings(found: Findings) -> int:
    return sum(not plot.element for plot in plots_of(found).values())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable(browser: Any, path: Path, found: Findings, scheme: str) -> None:
    with Opened(browser, path, scheme) as opened:
        view = opened.page
        assert opened.said == []
        assert opened.asked == []
        assert view.title().startswith(f"{found.name}: ")
        assert view.evaluate("document.documentElement.scrollWidth") <= LAPTOP["width"]
        assert view.evaluate("getComputedStyle(document.documentElement).backgroundColor") == GROUNDS[scheme]

        # The answer is visible without scrolling.
        box = view.locator("#answer").bounding_box()
        assert box["y"] + box["height"] <= LAPTOP["height"]

        assert view.locator("svg.narrow-plot >> visible=true").count() == 0
        drawn = view.locator("svg.wide-plot >> visible=true")
        assert drawn.count() == drawings(found)
        for number in range(drawn.count()):
            box = drawn.nth(number).bounding_box()
            assert box["width"] >= 600
            assert box["height"] >= 150

        assert [rule["id"] for rule in Axe().run(view).response["violations"]] == []
        contrasts = view.evaluate(CONTRASTS)
        assert len(contrasts) > 100
        assert [(round(ratio, 2), text) for ratio, text in contrasts if ratio < 4.5] == []


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_no_screen_scrolls_sideways_and_plots_fit_it(browser: Any, path: Path, found: Findings, width: int) -> None:
    with Opened(browser, path, "light", viewport={"width": width, "height": 800}) as opened:
        view = opened.page
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        shape = "narrow" if width < 768 else "wide"
        drawn = view.locator(f"svg.{shape}-plot >> visible=true")
        assert drawn.count() == view.locator("svg.plot >> visible=true").count() == drawings(found)
        # The smallest text of a plot, in CSS pixels.
        assert view.evaluate(SMALLEST) >= 9.5


def test_what_is_folded_is_printed_and_no_picture_is_cut(browser: Any, path: Path) -> None:
    with Opened(browser, path, "light") as opened:
        view = opened.page
        assert view.evaluate(UNSEEN) > 20
        view.emulate_media(media="print")
        assert view.evaluate(UNSEEN) == 0
        assert view.evaluate(CUT) == []
        assert view.pdf().startswith(b"%PDF-")


UNSEEN = "[...document.querySelectorAll('details :is(table, dt, dd)')].filter(node => !node.checkVisibility()).length"
"""Folded tables and definitions."""

CUT = """[...document.querySelectorAll('svg.wide-plot, svg.ladder, tr, dd')].filter(
  node => getComputedStyle(node).breakInside !== 'avoid').map(node => node.outerHTML.slice(0, 80))"""
"""Pictures, rows and definitions that two pages can share."""

SMALLEST = """() => Math.min(...[...document.querySelectorAll('svg.plot text')].filter(t => t.getClientRects().length)
  .map(t => parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.clientWidth
    / t.ownerSVGElement.viewBox.baseVal.width))"""
"""Size of the smallest text in a visible plot, in CSS pixels."""
