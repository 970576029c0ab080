"""Pictures of the pages: SVG in the page's own colors, without inline styles, which the pages' policy refuses."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from maskreg.words import percent

_WIDTH, _HEIGHT = 96, 20

_BAR = 260

_STEPS = 48
"""Maximum number of steps of a sparkline; more layers are averaged."""


def sparkline(densities: Sequence[float]) -> Markup:
    """Density by layer as a row of steps from zero to the highest.

    Args:
        densities: one of each layer, in the order of the model; not empty.
    """
    lowest, highest = min(densities), max(densities)
    label = f"Density by layer: {percent(lowest)} to {percent(highest)}"
    stride = -(-len(densities) // _STEPS)
    groups = [densities[at : at + stride] for at in range(0, len(densities), stride)]
    means = [sum(group) / len(group) for group in groups]
    top = max(means) or 1.0
    line = "".join(
        f"V{_rounded(_HEIGHT - (_HEIGHT - 1) * mean / top)}H{_rounded(_WIDTH * number / len(means))}"
        for number, mean in enumerate(means, start=1)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">'
        '<path class="area" d="M0 {1}{3}V{1}z"/><path d="M0 {4}"/></svg>'
    ).format(_WIDTH, _HEIGHT, label, line, line.removeprefix("V"))


def bar(share: float, kind: str) -> Markup:
    """A share as a bar, from 0 to 1.

    Args:
        share: of the whole width.
        kind: ``observed``, ``null`` or ``neutral``: what its color means, as in reports.
    """
    width = _rounded(_BAR * min(max(share, 0.0), 1.0))
    return Markup(
        '<svg class="bar" viewBox="0 0 {0} 12" width="{0}" height="12" aria-hidden="true">'
        '<path class="rail" d="M0 6H{0}"/><path class="{1}" d="M0 6H{2}"/></svg>'
    ).format(_BAR, kind, width)


def _rounded(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
