"""The page's own words: the answer, figures as text, and definitions of what no comparison defines."""

from __future__ import annotations

from maskreg.analysis.definitions import DEFINITIONS as COMPARED
from maskreg.analysis.evidence import MATCHED, ROUNDING
from maskreg.analysis.glossary import GLOSSARY
from maskreg.report.findings import Against, Findings
from maskreg.report.geometry import STABLE, TOP

DEFINITIONS = {
    "density": "Coordinates of a group that moved, over its coordinates: nnz / numel.",
    "rule": "What counts as moved. Both checkpoints are cast to bf16 first. exact: the codes differ, with -0.0 equal "
    "to +0.0. abs:TAU: the fp32 difference of the codes exceeds TAU. The two give different masks: the step "
    "between neighboring codes of small weights is less than 1e-5.",
    "energy": "Sum of squared fp32 differences of the bf16 values. Unknown, and given as 0, for masks that were not "
    "made by comparing checkpoints.",
    "ffn-energy": "FFN energy share: energy of the FFN's tensors over all energy. Source: arXiv 2606.13657, table 3.",
    "ffn-density": "FFN density: coordinates of the FFN that moved, over its coordinates.",
    "ffn-share": "FFN share of the mask: moved coordinates that lie in the FFN, over all moved coordinates.",
    "ffn-lift": "Each FFN ratio over what the FFN's share of the compared parameters predicts. A lift of 1 says that "
    "nothing is special about the FFN.",
    "by-exponent": "Density of the weights whose magnitude in the source lies between 2^e and 2^(e+1). bf16 keeps 8 "
    "significant bits, so the step between neighboring codes, and with it the smallest update that shows, is "
    "proportional to the magnitude: small weights move under any update.",
    "elsewhere": "Share of the mask that lies in other classes of weights than rounding alone would choose: half the "
    "sum, over tensors and classes, of the difference between the mask's count and the rounding null's, over nnz. "
    "A class is an exponent of the source's code, mantissa 0 apart. By chance: the same for a mask that "
    "rounding did make. It says where the mask lies by magnitude, not which of the weights of one magnitude "
    "it takes; only a second mask shows whether that choice is more than noise.",
    **{name: text for name, text in COMPARED.items() if name not in ("density", "groups", "nnz", "rule")},
}
"""OverlapFigures of masks, by the name of the anchor."""

GEOMETRY = {anchor: f"{found.text}. Source: {found.source}." for anchor, found in GLOSSARY.items()}
"""OverlapFigures of geometry, likewise; only on pages that have some."""

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
