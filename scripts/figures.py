"""Draw what the documentation shows of reports and of a server's pages: ``python -m scripts.figures --help``.

Without a pair, screenshots of the report about the checkpoints in ``demo``, and of the pages of a server that has
them: on a wide screen, a tablet and a phone, by day and by night. With ``--evidence DIR``, the plots of
``docs/evidence.md`` about DIR/source, DIR/opd and DIR/rlvr, each in one SVG for both themes.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import maskreg
from maskreg.reports.findings import NamedMask, gather
from maskreg.reports.page import plots_of
from maskreg.reports.pictures import compact, svg
from maskreg.reports.theme import LIGHT, SIZES
from scripts.served import fill, serving
from scripts.themes import COUNTERPARTS, with_both_themes

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "assets"

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")

COLORS = 64
"""In a screenshot's palette: text and plots look the same, at a quarter of the size."""

PLOTS = {"overlap-1": "evidence-overlap", "exponents": "evidence-magnitude"}
"""Plots of a report, and how the files begin that the page of evidence shows."""


@dataclass(frozen=True)
class Shot:
    """A picture of a report on a screen.

    Attributes:
        name: of the file.
        width, height: of the screen, in CSS pixels.
        scheme: ``light`` or ``dark``.
        scale: pixels of the picture for each CSS pixel.
        top: what is at the top of the screen, as a CSS selector; empty for the top of the page.
        path: of the page on a server; empty for a report.
    """

    name: str
    width: int
    height: int
    scheme: str
    scale: float = 1
    top: str = ""
    path: str = ""

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height of the picture."""
        return round(self.width * self.scale), round(self.height * self.scale)


REPORT_SHOTS = (
    Shot("report-wide.png", 1366, 900, "light"),
    Shot("report-tablet.png", 820, 1180, "dark", top="#magnitude"),
    Shot("report-phone.png", 360, 740, "light", scale=1.5, top="#overlaps"),
)


_PAIR = "/compare?ref=lab/sums-opd:v1&ref=lab/sums-opd:seed1"

SERVER_SHOTS = (
    Shot("server-list.png", 1280, 560, "light", path="/"),
    Shot("server-artifact.png", 1280, 900, "light", path="/p/lab/sums-opd:v1"),
    Shot("server-layers.png", 820, 900, "dark", top="#layers", path="/p/lab/sums-opd:v1"),
    Shot("server-compare.png", 1280, 900, "dark", path=_PAIR),
    Shot("server-phone.png", 360, 740, "light", scale=1.5, path="/"),
)

SHOTS = (*REPORT_SHOTS, *SERVER_SHOTS)
"""Every screenshot of the documentation."""


def main() -> None:
    """Write the pictures into ``docs/assets``."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="draw the plots of these checkpoints instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.evidence:
            draw_evidence(options.evidence.absolute(), folder)
        else:
            photograph(page_of(ROOT / "demo", folder))
            fill(ROOT / "demo", folder / "served")
            with serving(folder / "served") as url, chromium() as browser:
                for shot in SERVER_SHOTS:
                    (FOLDER / shot.name).write_bytes(small(picture(browser, f"{url}{shot.path}", shot)))


def page_of(pair: Path, folder: Path) -> Path:
    """Write the report about the target of a pair against the target of its other seed."""
    page = folder / "report.html"
    with workspace(folder) as space:
        stored = [
            maskreg.extract(pair / "source", pair / target, name, family="sums", method="opd", workspace=space)
            for target, name in (("target", "lab/sums-opd:v1"), ("target-seed1", "lab/sums-opd:seed1"))
        ]
        maskreg.analyze(stored[0], metrics=("norm", "rank"), workspace=space)
        maskreg.report(stored[0], page, against=stored[1:], workspace=space)
    return page


def workspace(folder: Path) -> maskreg.Workspace:
    """A registry of its own."""
    return maskreg.Workspace(maskreg.Settings(folder / "registry", folder / "config.toml"))


def draw_evidence(pair: Path, folder: Path) -> None:
    """Write the plots of the page of evidence, for a laptop and for a phone."""
    with workspace(folder) as space:
        masks = []
        for target in ("opd", "rlvr"):
            stored = maskreg.extract(pair / "source", pair / target, target, workspace=space)
            masks.append(NamedMask(stored.name, stored.artifact, stored.card))
        plots = plots_of(gather(masks[0], masks[1:], maskreg.open_checkpoint(pair / "source")))
        for name, file in PLOTS.items():
            for size in SIZES:
                drawn = compact(svg(plots[name], LIGHT, size))
                (FOLDER / f"{file}-{size.name}.svg").write_text(with_both_themes(drawn, COUNTERPARTS) + "\n")


def photograph(page: Path) -> None:
    """Write the screenshots of a report."""
    with chromium() as browser:
        for shot in REPORT_SHOTS:
            (FOLDER / shot.name).write_bytes(small(picture(browser, page.as_uri(), shot)))


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        program = next(filter(None, map(shutil.which, PROGRAMS)), driver.chromium.executable_path)
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


def picture(browser: Any, address: str, shot: Shot) -> bytes:
    """What a screen shows of a page, as PNG."""
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme=shot.scheme,
        device_scale_factor=shot.scale,
    )
    view = context.new_page()
    view.goto(address)
    if shot.top:
        view.locator(shot.top).evaluate("e => window.scrollTo(0, e.getBoundingClientRect().top + scrollY - 12)")
    taken: bytes = view.screenshot()
    context.close()
    return taken


def small(png: bytes) -> bytes:
    """The same picture with a palette."""
    from PIL import Image

    packed = io.BytesIO()
    with Image.open(io.BytesIO(png)) as taken:
        flat = taken.convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        flat.save(packed, format="png", optimize=True)
    return packed.getvalue()


if __name__ == "__main__":
    main()
