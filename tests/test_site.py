"""The documentation's site: it builds without a warning, needs no network, and defines its terms."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from maskreg_cli.main import COMMANDS

from scripts import notebooks
from scripts.commands import METHODS_PAGE, with_methods
from tests.browser import Opened, browser
from tests.pages import blocks, commands
from tests.repository import ROOT

__all__ = ["browser"]


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


def test_every_command_has_a_page_whose_button_copies_what_can_be_typed(site: Path, browser: Any) -> None:
    assert {path.stem for path in (site / "commands").glob("*.html")} == {"index", *COMMANDS}
    with Opened(browser, site / "commands" / "push.html", "light") as opened:
        opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened.page.locator(".language-console").get_by_role("button", name="Copy to clipboard").click()
        lines = opened.page.evaluate("navigator.clipboard.readText()").splitlines()
        assert lines and all(line.startswith("maskreg push ") for line in lines)
        opened.page.get_by_role("link", name="pull", exact=True).first.click()
        opened.page.get_by_role("heading", name="maskreg pull").first.wait_for()


@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_runs_what_its_page_tells_to_type(site: Path, name: str) -> None:
    cells = json.loads((site / f"{name}.ipynb").read_text())["cells"]
    typed = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for block in blocks((ROOT / "docs" / f"{name}.md").read_text()):
        if block.kind == "python":
            assert (block.text.strip() in typed) == (not block.reason)
        elif block.kind == "console":
            steps = [step.command for step in commands(block) if not step.command.startswith("export ")]
            assert all((command in typed) == (not block.reason) for command in steps)


def test_the_table_of_merge_methods_is_up_to_date() -> None:
    merging = METHODS_PAGE.read_text(encoding="utf-8")
    assert merging == with_methods(merging), "run python -m scripts.commands"
