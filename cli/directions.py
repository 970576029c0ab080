"""How far updates point the same way, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maskreg.words import counted, percent, three_digits, whole

from .layout import folded, paragraph
from .summary import layers_in_order
from .table import Row, table

if TYPE_CHECKING:
    from maskreg.analysis.updates import Products, UpdatePair

_LEGEND = (
    "sd: of the cosine if the sign of every difference were random. By chance: the mean of random sets of as many "
    "channels."
)


def directions(
    named: Sequence[tuple[tuple[str, str], UpdatePair]], by: str | None, *, verbose: bool = False
) -> list[str]:
    """Cosine, orthogonal energy and shared channels of every pair of updates; then cosines by group.

    Args:
        named: every pair with the letters of both.
        by: one of :data:`~maskreg_cli.layout.GROUPS` for a line on each group; None for none.
        verbose: every group.
    """
    rows: list[Row] = [("updates", "cosine", "sd", "orthogonal", "by tensor", "top channels", "by chance")]
    for letters, pair in named:
        channels = (three_digits(pair.channels.jaccard), three_digits(pair.channels.expected))
        shares = " and ".join(map(percent, pair.orthogonal_by_tensor))
        rows.append((" ".join(letters), *_cells(pair.whole), shares, *channels))
    lines = [*table(rows), *paragraph(_LEGEND)]
    for letters, pair in named:
        if pair.whole.nonfinite:
            number = counted(pair.whole.nonfinite, "coordinate")
            lines += paragraph(f"{' '.join(letters)}: {number} left out, because a number is NaN or infinite")
        if pair.channels.left_out:
            number = counted(len(pair.channels.left_out), "MLP")
            lines += paragraph(f"{' '.join(letters)}: {number} left out, because an update does not move them")
        if by:
            groups = layers_in_order(pair.by(by))
            kept, left_out = folded(groups, lambda row: row.cosine, things=f"{by}s", by="cosine", whole=verbose)
            titles: Row = (f"{by}, {' and '.join(letters)}", "coordinates", "cosine", "sd", "orthogonal")
            grouped = [(label or "-", whole(row.numel), *_cells(row)) for label, row in kept.items()]
            lines += ["", *table([titles, *grouped]), *left_out]
    return lines


def _cells(row: Products) -> Row:
    return three_digits(row.cosine), three_digits(row.cosine_sd), percent(row.orthogonal)
