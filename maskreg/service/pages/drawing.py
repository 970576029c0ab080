"""Pictures of the pages: SVG in the page's own colors, without inline styles, which the pages' policy refuses."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from maskreg.words import percent

_TALL = 40
"""Height of a sparkline, in units of its own."""

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
    # Whole numbers, a step a unit wide, and one path for line and area: forty of these are on the first page.
    line = "".join(f"V{round(_TALL * (1 - mean / top))}h1" for mean in means)
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="96" height="20" role="img" '
        'aria-label="{2}"><path d="M0 {1}{3}V{1}"/></svg>'
    ).format(len(means), _TALL, label, line)


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
