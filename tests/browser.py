"""A headless Chromium, and what it says of a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

QUIET = (
    "--no-sandbox",  # root has none, and the pages are our own
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

LAPTOP = {"width": 1366, "height": 768}


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        own = driver.chromium.executable_path
        program = next(filter(None, map(shutil.which, PROGRAMS)), own)
        if not Path(program).exists():
            pytest.fail(f"none of {', '.join(PROGRAMS)} is installed: apt-get install -y chromium")
        running = driver.chromium.launch(executable_path=program, args=list(QUIET))
        yield running
        running.close()


# Playwright keeps an event loop running for as long as it lives, and other tests have loops of their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser."""
    with chromium() as running:
        yield running


class Opened:
    """A page in a browser.

    Attributes:
        page: playwright's.
        said: what it wrote to the console, errors of scripts included.
        asked: addresses that it asked for, its own left out.
    """

    def __init__(self, browser: Any, path: Path | str, scheme: str, **options: Any) -> None:
        """Open a file or an address by day (``light``) or by night (``dark``)."""
        self._context = browser.new_context(**{"viewport": LAPTOP, "color_scheme": scheme, **options})
        self.page = self._context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        address = path if isinstance(path, str) else path.as_uri()
        self.page.goto(address)
        self.asked.remove(address)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()


CONTRASTS = """() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = node => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !node.getClientRects().length || node.closest("style, .hidden")) continue;
    const style = getComputedStyle(node), drawn = node.closest("svg");
    // What is written on the colored cells of a heat map has the cell behind it, not the page.
    if (drawn && /^[−\\d.<]+$/.test(text)) continue;
    const one = light(rgb(drawn ? style.fill : style.color)), other = light(ground(node));
    found.push([(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), text]);
  }
  return found;
}"""
"""Contrast of every visible text with what is behind it, by the formula of WCAG 2, and the text."""
