"""The UpSet plot, the one picture of what three to six masks share: a column for each intersection, as SVG.

After Lex and others, "UpSet: Visualization of Intersecting Sets" (2014)::

                         41 %
                          |    22 %
                         -+-    |    9 %      - what independent masks share
    in each mask          |    -+-   -+-
    57 %  ======  A       o     o     .
    41 %    ====  B       o     .     o       o the coordinates are in these masks, and in no others

All is a share of the coordinates that any mask holds. Places across are percentages of the width, as in a ladder; on a
phone the figures over the bars stand upright.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from maskreg.analysis.comparison import Intersection
from maskreg.words import counted, percent, whole

TITLE = "Share of what any mask holds that lies in exactly these masks"

NOTE = (
    "The bar of a column is what the masks with a full dot hold and no others do, and the line across it what would be "
    "if masks of these sizes were independent. On the left, all of each mask."
)
"""What is to be read in the picture."""

MOST_BARS = 12
"""Intersections with a bar of their own; what is left has one bar together."""

LETTERS = "ABCDEF"

_HIGH, _ABOVE, _ROW = 150, 48, 24
_BASE = _ABOVE + _HIGH
_SIZES, _LETTER, _LEFT = (14.0, 26.0), 29.0, 33.0

_UPSET = Markup(
    '<svg class="upset" width="100%" height="{}" role="img"><title>{}</title><desc>{}</desc>{}'
    '<text x="26%" y="{}" text-anchor="end">in each mask</text></svg>'
)
_COLUMN = Markup(
    '<g><title>{title}</title><rect x="{bar[0]:.2f}%" width="{bar[1]:.2f}%" y="{bar[2]:.1f}" height="{bar[3]:.1f}"/>'
    '<svg class="over" x="{over[0]:.2f}%" y="{over[1]:.1f}"><text>{share}</text></svg>{below}</g>'
)
_CHANCE = Markup('<line class="chance" x1="{0:.2f}%" x2="{1:.2f}%" y1="{2:.1f}" y2="{2:.1f}"/>')
_DOT = Markup('<circle{} cx="{:.2f}%" cy="{}" r="5"/>')
_LINK = Markup('<line x1="{0:.2f}%" x2="{0:.2f}%" y1="{1}" y2="{2}"/>')
_OTHERS = Markup('<svg class="over" x="{:.2f}%" y="{}"><text>others</text></svg>')
_SIZE = Markup(
    '<text x="13%" y="{}" text-anchor="end">{}</text>'
    '<rect class="size" x="{:.2f}%" width="{:.2f}%" y="{}" height="12"/>'
    '<text x="{}%" y="{}" text-anchor="middle">{}</text>'
)


def letters_of(masks: Sequence[int]) -> str:
    """What an intersection is called: ``A C``."""
    return " ".join(LETTERS[mask] for mask in masks)


def sizes_of(intersections: Sequence[Intersection]) -> list[int]:
    """Coordinates of every mask, from all combinations of them."""
    masks = range(len(intersections).bit_length())
    return [sum(each.coordinates for each in intersections if mask in each.masks) for mask in masks]


def bars_of(intersections: Sequence[Intersection]) -> list[Intersection]:
    """The largest intersections, and what is left as one that names no mask."""
    rest = intersections[MOST_BARS:]
    # Its expected count is left out: the sum of so many would dwarf the bars.
    left = [Intersection((), sum(each.coordinates for each in rest), 0.0)] if rest else []
    return [*intersections[:MOST_BARS], *left]


def upset(intersections: Sequence[Intersection]) -> Markup:
    """The picture as an element of a page whose style includes ``upset.css``; empty for empty masks."""
    union, bars = sum(each.coordinates for each in intersections), bars_of(intersections)
    if not union:
        return Markup()
    masks, sizes = len(intersections).bit_length(), sizes_of(intersections)
    parts = [_size(mask, size / union, size / max(sizes)) for mask, size in enumerate(sizes)]
    parts += _columns(bars, masks, union)
    shares = [f"{letters_of(each.masks) or 'others'} {percent(each.coordinates / union)}" for each in bars]
    each_mask = [f"{LETTERS[mask]} {percent(size / union)}" for mask, size in enumerate(sizes)]
    told = f"In exactly these masks: {', '.join(shares)}. In each mask: {', '.join(each_mask)}."
    return _UPSET.format(_BASE + 16 + _ROW * masks, TITLE, told, Markup().join(parts), _BASE - 4)


def _columns(bars: Sequence[Intersection], masks: int, union: int) -> Iterator[Markup]:
    pitch, tallest = (100 - _LEFT) / len(bars), max(max(each.coordinates, each.expected) for each in bars)
    for number, each in enumerate(bars):
        x, told = _LEFT + pitch * (number + 0.5), counted(each.coordinates, "coordinate")
        height, chance = (_HIGH * count / tallest for count in (each.coordinates, each.expected))
        below = _OTHERS.format(x, _y(0) + _ROW * masks / 2)
        if each.masks:
            told += f", {whole(each.expected)} if independent"
            held = (Markup(' class="in"' if mask in each.masks else "") for mask in range(masks))
            below = _CHANCE.format(x - pitch / 3, x + pitch / 3, _BASE - chance)
            below += _LINK.format(x, *(_y(end(each.masks)) for end in (min, max)))
            below += Markup().join(_DOT.format(marked, x, _y(mask)) for mask, marked in enumerate(held))
        yield _COLUMN.format(
            title=f"{letters_of(each.masks) or 'others'}: {told}",
            bar=(x - pitch / 3, 2 * pitch / 3, _BASE - height, height),
            over=(x, _BASE - max(height, chance) - 6),
            share=percent(each.coordinates / union),
            below=below,
        )


def _size(mask: int, share: float, length: float) -> Markup:
    (left, right), y = _SIZES, _y(mask)
    width = (right - left) * length
    return _SIZE.format(y + 4, percent(share), right - width, width, y - 6, _LETTER, y + 4, LETTERS[mask])


def _y(mask: int) -> int:
    return _BASE + 20 + _ROW * mask
