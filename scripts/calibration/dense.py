"""The null of rows and columns fitted to every coordinate, slowly: ``python -m scripts.calibration.dense SOURCE A B``.

Prints, for every matrix of the checkpoints, what the masks of both targets are expected to share, and how far the
expectation of ``maskreg compare`` is from that.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.evidence import STRIPED
from maskreg.checkpoint import open_checkpoint
from maskreg.mask.rounding import classes_of
from maskreg.tensors.cast import to_bf16
from scripts.calibration.draws import Bits, Codes, Floats, Pair
from scripts.calibration.measure import figures_of_pair

_FAR, _PRECISION, _ROUNDS = 12.0, 1e-6, 200


class Fit(NamedTuple):
    """Chances of one mask, and their slopes by the logarithm of the noise: float64 ``[rows, columns]``."""

    chances: Floats
    slopes: Floats


_ERFC = np.frompyfunc(math.erfc, 1, 1)


def fitted(moved: Bits, codes: Codes) -> Fit:
    """Chances 2 Q(exp(-a(class) - b(row) - c(column))) that expect what moved in every class, row and column."""
    classes = np.unique(classes_of(codes), return_inverse=True)[1].reshape(codes.shape)
    rows, columns = np.ogrid[: codes.shape[0], : codes.shape[1]]
    labels = classes, np.broadcast_to(rows, codes.shape), np.broadcast_to(columns, codes.shape)
    effects = [np.zeros(int(own.max()) + 1) for own in labels]
    sums = [_totals(own, moved) for own in labels]
    sizes = [_totals(own, np.ones(own.shape)) for own in labels]
    for _ in range(_ROUNDS):
        furthest = 0.0
        for number, own in enumerate(labels):
            fit = _chances(sum(effect[other] for effect, other in zip(effects, labels, strict=True)))
            lacking = sums[number] - _totals(own, fit.chances)
            furthest = max(furthest, float(np.abs(lacking).sum()))
            slopes = np.maximum(_totals(own, fit.slopes), 1e-9 * sizes[number])
            effects[number] = np.clip(effects[number] + np.clip(lacking / slopes, -1, 1), -_FAR, _FAR)
        if furthest < _PRECISION * max(moved.sum(), 1):
            break
    return _chances(sum(effect[other] for effect, other in zip(effects, labels, strict=True)))


def expected_in_both(pair: Pair) -> float:
    """Coordinates that both masks are expected to share."""
    return float((fitted(pair.a, pair.codes).chances * fitted(pair.b, pair.codes).chances).sum())


def _totals(labels: npt.NDArray[np.int64], values: npt.NDArray[np.generic]) -> Floats:
    return np.bincount(labels.reshape(-1), values.reshape(-1).astype(float)).astype(np.float64)


def _chances(x: Floats) -> Fit:
    steps = np.exp(-x)
    chances: Floats = _ERFC(steps / np.sqrt(2)).astype(np.float64)
    return Fit(chances, np.sqrt(2 / np.pi) * steps * np.exp(-steps * steps / 2))


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.calibration.dense", description=__doc__)
    parser.add_argument("checkpoints", type=Path, nargs=3, metavar="CHECKPOINT")
    differences = []
    source, left, right = (open_checkpoint(path) for path in parser.parse_args().checkpoints)
    for name, info in source.tensors.items():
        if len(info.shape) < 2:
            continue
        read = [to_bf16(own.read(name, 0, info.numel), info.dtype) for own in (source, left, right)]
        codes, *others = (own.reshape(-1, info.shape[-1]) for own in read)
        pair = Pair(codes, *(other != codes for other in others))
        dense, found = expected_in_both(pair), figures_of_pair(pair).nulls[STRIPED].expected or 0.0
        differences.append(found / dense - 1 if dense else 0.0)
        print(f"{name:56} {dense:12,.1f} {found:12,.1f} {differences[-1]:+.4%}", flush=True)
    sizes = np.abs(differences)
    print(f"{len(sizes)} matrices: median difference {np.median(sizes):.4%}, largest {sizes.max():.4%}")


if __name__ == "__main__":
    main()
