"""Text of the page: the answer, numbers, and which definitions of the glossary it shows."""

from __future__ import annotations

from maskreg.analysis.evidence import MATCHED, ROUNDING
from maskreg.analysis.glossary.geometry import GEOMETRY
from maskreg.analysis.glossary.masks import MASKS
from maskreg.analysis.glossary.overlap import OVERLAP
from maskreg.report.findings import Against, Findings
from maskreg.report.geometry import STABLE, TOP

DEFINITIONS = {entry.name: entry for entry in (*MASKS, *OVERLAP)}
"""What the page explains, by anchor."""

GEOMETRY_DEFINITIONS = {entry.name: entry for entry in GEOMETRY}
"""The same of the geometry of updates; only on pages that show some."""

KEY = (
    STABLE,
    f"{TOP}1",
    f"{TOP}16",
    "effective_rank",
    "relative_norm",
    "angle_max_u_16",
    "nss",
    "projection_lift_0.10",
)
"""OverlapFigures of geometry that are shown before anybody asks for all of them."""

MORE, NOT_MORE, OPEN = "more", "not-more", "open"
"""What the page's mark says."""


def answer(found: Findings) -> tuple[str, str]:
    """The mark, and the headline sentence."""
    asked = [against for against in found.against if against.independent]
    settled = [against for against in asked if mark_of(against) != OPEN]
    if not asked:
        return OPEN, (
            "One mask alone cannot tell: any small update moves small weights, because bf16 rounds. Whether the choice "
            "among weights of one magnitude is more than noise shows against a mask of another run: add --against."
        )
    if not settled:
        return OPEN, asked[0].verdict.sentence
    if len(asked) == 1:
        return mark_of(asked[0]), asked[0].verdict.sentence
    yes = sum(mark_of(against) == MORE for against in settled)
    mark = MORE if yes == len(asked) else NOT_MORE if not yes and len(settled) == len(asked) else OPEN
    return mark, f"The overlap is more than rounding against {yes} of {len(asked)} masks of other runs; see each below."


def mark_of(against: Against) -> str:
    """What one comparison settles. More than chance alone settles nothing: rounding is more than chance, too."""
    nulls, more = against.comparison.whole.nulls, against.verdict.more
    if more is None or (more and all(nulls[name].expected is None for name in (MATCHED, ROUNDING))):
        return OPEN
    return MORE if more else NOT_MORE


def percent(share: float | None, digits: int = 1) -> str:
    """A share for people."""
    return "undefined" if share is None else f"{100 * share:.{digits}f} %"


def number(value: float | None, digits: int = 4) -> str:
    """A figure with so many significant digits; thousands are separated."""
    if value is None:
        return "undefined"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"
