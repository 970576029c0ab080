"""The figures of a drawn pair, as ``compare`` counts them."""

from __future__ import annotations

from maskreg.analysis.contingency import count_classes
from maskreg.analysis.evidence import OverlapFigures, figures_of, sums_from_classes
from maskreg.analysis.grid import Grid, count_grid, shape_of
from maskreg.mask import pack
from scripts.calibration.draws import Pair

_NOT_ASKED = "not asked"


def figures_of_pair(pair: Pair) -> OverlapFigures:
    """All figures of one pair of updates; the rounding nulls, which do not decide, are left out."""
    shape = shape_of(pair.codes.shape)
    assert shape is not None
    a, b, codes = pack(pair.a.reshape(-1)), pack(pair.b.reshape(-1)), pair.codes.reshape(-1)
    grid = Grid(shape)
    grid.add(count_grid(a, b, codes, 0, shape))
    return figures_of(sums_from_classes(count_classes(a, b, codes), _NOT_ASKED, _NOT_ASKED, grid, has_lines=True))
