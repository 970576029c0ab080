"""Take the documentation's screenshots of reports and of a server's pages: ``python -m scripts.figures``.

They show the report about the checkpoints in ``demo``, and the pages of a server that has them: on a wide screen, a
tablet and a phone, by day and by night.
"""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import maskreg
from maskreg.service.app import create_app
from maskreg.service.context import Service
from maskreg.service.start import Options, open_service
from tests.browser import chromium
from tests.service.serving import listening

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "assets"

COLORS = 64
"""In a screenshot's palette: text and plots look the same, at a quarter of the size."""


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


_PAIR = "/compare?ref=lab/sums-opd:v1&ref=lab/sums-opd:seed1"

SHOTS = (
    Shot("report-wide.png", 1366, 900, "light"),
    Shot("report-tablet.png", 820, 1180, "dark", top="#magnitude"),
    Shot("report-phone.png", 360, 740, "light", scale=1.5, top="#overlaps"),
    Shot("server-list.png", 1280, 560, "light", path="/"),
    Shot("server-artifact.png", 1280, 900, "light", path="/p/lab/sums-opd:v1"),
    Shot("server-layers.png", 820, 900, "dark", path="/p/lab/sums-opd:v1?tab=layers"),
    Shot("server-compare.png", 1280, 900, "dark", path=_PAIR),
    Shot("server-run.png", 1280, 1140, "light", path="/runs/lab/run:latest"),
    Shot("server-phone.png", 360, 740, "light", scale=1.5, path="/"),
)


def main() -> None:
    """Write the pictures into ``docs/assets``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = page_of(ROOT / "demo", folder).as_uri()
        fill(ROOT / "demo", folder / "served")
        with (
            open_service(Options(home=str(folder / "served"))) as service,
            listening(create_app(service)) as url,
            chromium() as browser,
        ):
            _open_to_all(service)
            train(ROOT / "demo", service.workspace)
            for shot in SHOTS:
                taken = picture(browser, f"{url}{shot.path}" if shot.path else report, shot)
                (FOLDER / shot.name).write_bytes(small(taken))


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


PROJECT = "lab"

README = """## What it is

A Qwen3-like model of one million parameters, distilled on-policy: 120 steps of 64 prompts, AdamW, lr 1e-6.

| held-out sums right | |
|---|--:|
| source | 34 % |
| this update | 47 % |
| teacher | 72 % |

Teacher and prompts are in the folder `demo` of the sources.
"""
"""Of the artifact that is pictured; figures as in ``demo/README.md``."""

STEPS = 45
"""Of the run: one page of versions, with its anchors."""


def fill(pair: Path, home: Path) -> None:
    """Fill a registry with the updates of a pair, a baseline, and what two updates share."""
    with maskreg.Workspace(maskreg.Settings(home=home, config_path=home / "config.toml")) as space:
        for target, tag in (("target-seed1", "seed1"), ("target", "v1")):
            ref = f"{PROJECT}/sums-opd:{tag}"
            maskreg.extract(pair / "source", pair / target, ref, family="sums", method="opd", workspace=space)
        maskreg.annotate(
            f"{PROJECT}/sums-opd:v1",
            description="On-policy distillation of a small model on **sums** of two numbers.",
            readme=README,
            license="apache-2.0",
            meta={"seed": "0"},
            workspace=space,
        )
        seeds = [f"{PROJECT}/sums-opd:v1", f"{PROJECT}/sums-opd:seed1"]
        maskreg.baseline(seeds[0], kind="random-per-tensor", seed=1, name=f"{PROJECT}/sums-random", workspace=space)
        maskreg.combine(seeds, f"{PROJECT}/sums-both-seeds", how="and", workspace=space)


def train(pair: Path, space: maskreg.Workspace) -> None:
    """Train the source of a pair on random tokens, and publish each step."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(pair / "source", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    keep = maskreg.Retention(anchor_every=16)
    with maskreg.Publisher(f"{PROJECT}/run", source=pair / "source", retention=keep, workspace=space) as publisher:
        for step, batch in enumerate(torch.randint(13, (STEPS, 4, 32))):
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            publisher.publish(model, meta={"step": str(step)})


def _open_to_all(service: Service) -> None:
    first = service.accounts.tokens.first()
    assert first is not None  # the registry is new
    admin = service.accounts.authenticate(first.token)
    service.accounts.projects.ensure(PROJECT, admin)
    service.accounts.projects.change(PROJECT, admin, public=True)


if __name__ == "__main__":
    main()
