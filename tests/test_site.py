"""The documentation's site: it builds without a warning, needs no network, and defines its terms."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from maskreg.glossary import ENTRIES
from scripts.commands import METHODS_PAGE, PATH, page, with_methods
from scripts.figures import FOLDER, SHOTS
from scripts.reference import SECTIONS
from scripts.site import TERMS, with_terms
from scripts.themes import with_both_themes
from tests.browser import Opened, browser
from tests.pages import blocks, commands
from tests.repository import ROOT

__all__ = ["browser"]

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_builds_and_can_be_searched(site: Path) -> None:
    assert (site / "index.html").exists()
    assert "bf16" in (site / "search" / "search_index.js").read_text()


def test_every_name_of_the_python_api_is_one_result_of_a_search(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    titles = Counter(item["title"] for item in index["docs"] if item["location"].startswith("python.html#"))
    assert {name: titles[name] for names in SECTIONS.values() for name in names if titles[name] != 1} == {}


def test_pictures_for_phones_are_there_and_all_have_both_themes() -> None:
    drawn = {path.relative_to(DOCS) for path in DOCS.rglob("*.svg")}
    shown = {
        (page.relative_to(DOCS).parent / name)
        for page in DOCS.rglob("*.md")
        for name in re.findall(r'(?:(?:src|srcset)="|\]\()([^")\s]+\.svg)[")]', page.read_text())
    }
    assert {Path(os.path.normpath(path)) for path in shown} == drawn
    assert [path for path in drawn if "prefers-color-scheme: dark" not in (DOCS / path).read_text()] == []


def test_screenshots_are_of_the_widths_that_the_script_takes() -> None:
    for shot in SHOTS:
        with Image.open(FOLDER / shot.name) as picture:
            assert picture.size == shot.pixels, "run python -m scripts.figures"
        assert (FOLDER / shot.name).stat().st_size < 50_000


def test_a_plot_in_both_themes_keeps_its_words() -> None:
    drawn = '<svg><defs/><path style="fill: #0072B2"/><text>#0072b2</text></svg>'
    both = with_both_themes(drawn, {"#0072b2": "#56b4e9"})
    assert '<path style="fill: var(--c0)"/><text>#0072b2</text>' in both
    assert "--c0: #0072b2;" in both.partition("@media")[0]
    assert "--c0: #56b4e9;" in both.partition("@media (prefers-color-scheme: dark)")[2]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(?:https?:)?//")
    styled = re.compile(r"<link[^>]*rel=[\"']?(?:stylesheet|icon)[^>]*\shref=[\"']?(?:https?:)?//")
    imported = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")
    pages = [
        path for path in site.rglob("*.html") if loaded.search(path.read_text()) or styled.search(path.read_text())
    ]
    styles = [path for path in site.rglob("*.css") if imported.search(path.read_text())]
    assert (pages, styles) == ([], [])


def test_pages_ask_no_server_and_can_be_searched(site: Path, browser: Any) -> None:
    with Opened(browser, site / "concepts" / "rounding-null.html", "dark") as opened:
        opened.page.locator("input.md-search__input").click()
        opened.page.keyboard.type("headroom")
        opened.page.locator(".md-search-result__item").first.wait_for()
        assert (opened.said, [url for url in opened.asked if not url.startswith("file:")]) == ([], [])


def test_what_is_copied_from_a_console_block_can_be_typed(site: Path, browser: Any) -> None:
    merging = (DOCS / "how-to" / "merge.md").read_text()
    typed = [
        "\n".join(step.command for step in commands(block)) for block in blocks(merging) if block.kind == "console"
    ]
    with Opened(browser, site / "how-to" / "merge.html", "light", permissions=["clipboard-read"]) as opened:
        buttons = opened.page.locator(".language-console .md-code__button[data-md-type=copy]")
        copied = []
        for number in range(buttons.count()):
            buttons.nth(number).click()
            copied.append(opened.page.evaluate("navigator.clipboard.readText()"))
        assert copied == typed


def test_terms_lead_to_the_glossary(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert re.search(r'<a href="glossary.html#mask"[^>]*title="[^"]+"[^>]*>mask</a>', text)
    assert text.count("glossary.html#mask") == 1


def test_every_linked_term_has_an_entry() -> None:
    assert set(TERMS.values()) <= set(ENTRIES)


def test_the_first_use_of_a_term_is_a_link_and_code_stays() -> None:
    text = with_terms("# A mask\n\n`mask` and [mask](x.md), masks, a mask.\n\n```sh\nmask\n```\n", "../glossary.md")
    head, linked, rest = text.partition("[masks](../glossary.md#mask ")
    assert linked
    assert head == "# A mask\n\n`mask` and [mask](x.md), "
    assert rest.endswith(", a mask.\n\n```sh\nmask\n```\n")


def test_the_commands_are_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == page(), "run python -m scripts.commands"
    merging = METHODS_PAGE.read_text(encoding="utf-8")
    assert merging == with_methods(merging), "run python -m scripts.commands"
