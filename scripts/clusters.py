"""How much wider intervals are for channels and neurons that tensors share: ``python -m scripts.clusters DIR``.

DIR holds checkpoints ``source``, ``opd`` and ``rlvr``. Prints the standard errors of the overlap of both masks three
times: with rows and columns of each tensor as clusters of their own; with each channel of the residual stream as one
cluster in all tensors; and with each neuron of an FFN, which is a row of two matrices and a column of a third, as one
cluster besides, as ``maskreg compare`` has it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from maskreg.analysis.evidence import BY_BOTH, MATCHED, STRIPED, OverlapSums, figures_of, sums_from_classes
from maskreg.analysis.excess import Z95
from maskreg.analysis.grid import Grid, count_grid, shape_of
from maskreg.checkpoint import Checkpoint, layer_of, open_checkpoint, role_of
from maskreg.checkpoint.roles import ALONE, Shared, shared_of, stream_of
from maskreg.mask import pack
from maskreg.mask.rounding import CLASSES, classes_of
from maskreg.tensors.cast import to_bf16

_NULLS = (MATCHED, STRIPED)


@dataclass
class Totals:
    """Sums over tensors, with spreads by what is a cluster.

    Attributes:
        own: rows and columns of each tensor.
        channels: channels of the residual stream instead, where a tensor has them.
        neurons: neurons too.
    """

    own: OverlapSums = field(default_factory=OverlapSums)
    channels: OverlapSums = field(default_factory=OverlapSums)
    neurons: OverlapSums = field(default_factory=OverlapSums)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.clusters", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args().folder
    with (
        open_checkpoint(folder / "source") as source,
        open_checkpoint(folder / "opd") as left,
        open_checkpoint(folder / "rlvr") as right,
    ):
        totals = measured(source, (left, right))
    print("standard error of            headroom                 observed / expected      log odds")
    print("under                        exponent  lines    exponent  lines    ratio")
    first: list[float] = []
    for label, sums in (
        ("each tensor by itself", totals.own),
        ("channels shared", totals.channels),
        ("channels and neurons shared", totals.neurons),
    ):
        errors = list(errors_of(sums))
        first = first or errors
        print(f"{label:28} " + "  ".join(f"{error:.5f}" for error in errors))
        print(f"{'':28} " + "  ".join(f"{error / least:6.3f}x" for error, least in zip(errors, first, strict=True)))


def measured(source: Checkpoint, targets: tuple[Checkpoint, Checkpoint]) -> Totals:
    """The sums of all tensors."""
    totals = Totals()
    stream = stream_of((n, layer_of(n), role_of(n), info.shape) for n, info in source.tensors.items())
    for name, info in source.tensors.items():
        codes, *others = (to_bf16(c.read(name, 0, info.numel), info.dtype).reshape(-1) for c in (source, *targets))
        a, b = (pack(other != codes) for other in others)
        shape, grid = shape_of(info.shape), None
        cells = np.zeros((CLASSES, 4), np.int64)
        if shape is None:
            np.add.at(cells, (classes_of(codes), (others[0] != codes) + 2 * (others[1] != codes)), 1)
        else:
            grid = Grid(shape)
            grid.add(count_grid(a, b, codes, 0, shape))
            cells = grid.cells
        shared = shared_of(name, layer_of(name), role_of(name), info.shape, stream)
        own, channels, neurons = (
            sums_from_classes(cells, "", "", grid, has_lines=True, shared=clusters)
            for clusters in (ALONE, Shared(shared.channels), shared)
        )
        totals.own += own
        totals.channels += channels
        totals.neurons += neurons
    return totals


def errors_of(sums: OverlapSums) -> Iterator[float]:
    """Standard errors of headroom, then of observed / expected, under each null; of the logarithm of the odds ratio."""
    figures = figures_of(sums)
    over = [figures.nulls[null] for null in _NULLS]
    for ends in (*(excess.headroom_interval for excess in over), *(excess.ratio_interval for excess in over)):
        low, high = ends or (math.nan, math.nan)
        yield (high - low) / 2 / Z95
    low, high = figures.mantel_haenszel_intervals[BY_BOTH] or (math.nan, math.nan)
    yield math.log(high / low) / 2 / Z95


if __name__ == "__main__":
    main()
