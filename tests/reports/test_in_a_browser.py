"""The page as people see it: opened at the size of a laptop, by day and by night."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maskreg.reports.findings import Findings
from maskreg.reports.page import plots_of
from tests.browser import CONTRASTS, LAPTOP, Opened

GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}


@pytest.fixture
def path(html: str, tmp_path: Path) -> Path:
    place = tmp_path / "report.html"
    place.write_text(html, encoding="utf-8")
    return place


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable(browser: Any, path: Path, found: Findings, scheme: str) -> None:
    with Opened(browser, path, scheme) as opened:
        view = opened.page
        assert opened.said == []
        assert opened.asked == []
        assert view.title() == f"{found.name}: is this mask more than rounding?"
        assert view.evaluate("document.documentElement.scrollWidth") <= LAPTOP["width"]
        assert view.evaluate("getComputedStyle(document.documentElement).backgroundColor") == GROUNDS[scheme]

        # The answer is there before anybody scrolls.
        box = view.locator("#answer").bounding_box()
        assert box["y"] + box["height"] <= LAPTOP["height"]

        other = {"light": "dark", "dark": "light"}[scheme]
        assert view.locator(f"svg.plot.{other} >> visible=true").count() == 0
        drawn = view.locator(f"svg.plot.{scheme} >> visible=true")
        assert drawn.count() == len(plots_of(found))
        for number in range(drawn.count()):
            box = drawn.nth(number).bounding_box()
            assert box["width"] >= 600
            assert box["height"] >= 150

        contrasts = view.evaluate(CONTRASTS)
        assert len(contrasts) > 100
        assert [(round(ratio, 2), text) for ratio, text in contrasts if ratio < 4.5] == []


@pytest.mark.parametrize("width", [360, 2560])
def test_no_screen_scrolls_sideways(browser: Any, path: Path, width: int) -> None:
    with Opened(browser, path, "light") as opened:
        opened.page.set_viewport_size({"width": width, "height": 800})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_needs_no_script(browser: Any, path: Path, found: Findings) -> None:
    with Opened(browser, path, "light", java_script_enabled=False) as opened:
        assert opened.page.locator("svg.plot.light >> visible=true").count() == len(plots_of(found))
        assert opened.page.locator("#answer").inner_text().startswith(("More", "No more", "Not settled"))


def test_a_figure_leads_to_its_definition(browser: Any, path: Path) -> None:
    with Opened(browser, path, "light") as opened:
        opened.page.locator("a[href='#headroom']").first.click()
        shown = opened.page.locator("#headroom").bounding_box()
        assert 0 <= shown["y"] < LAPTOP["height"]
