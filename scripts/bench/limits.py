"""Entropy limits of a delta whose decoder knows only each weight's exponent in the source.

Plug-in entropies of the pair's own counts, over all tensors. A codec that models more (rows, columns, tensors) can end
below them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from scripts.bench.pairs import CodecPair

EXPONENTS = 256

LARGEST = 8
"""ULP steps up to this size have a symbol each; longer ones share symbols by size class."""

_CLASSES = 15
_FLIP = 2 * (LARGEST + _CLASSES) + 1
_TOKENS = _FLIP + 1
_FLIP_BITS = 15

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """Bits for each coordinate of a pair, changed or not.

    Attributes:
        mask: of which coordinates changed, given the source's exponent.
        step: of how far they changed in ULP steps, given the source's exponent.
    """

    mask: float
    step: float


def limits(pair: CodecPair) -> Limits:
    """Count symbols by exponent and compute the entropies."""
    counts: Counts = np.zeros((EXPONENTS, _TOKENS), np.int64)
    for block in pair.blocks():
        cells = exponents(block.source) * _TOKENS + tokens(block.source, block.target)
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    same = counts[:, 0]
    mask = np.stack([same, counts.sum(1) - same], axis=1)
    raw = int(counts.sum(0) @ raw_bits())
    return Limits(mask=_bits(mask) / pair.params, step=(_bits(counts) + raw) / pair.params)


def exponents(source: Codes) -> npt.NDArray[np.int64]:
    """The exponent field of bf16 bits, int64 ``[n]``."""
    return (source >> 7 & 0xFF).astype(np.int64)


def tokens(source: Codes, target: Codes) -> npt.NDArray[np.int64]:
    """One symbol for each coordinate, int64 ``[n]``.

    0 if nothing changed, else the difference of the magnitudes' bits: 1 to 8 one by one, then exp-Golomb classes, each
    upwards or downwards. The last symbol is a change of sign.
    """
    step = (target & 0x7FFF).astype(np.int32) - (source & 0x7FFF).astype(np.int32)
    size = np.abs(step)
    beyond = np.maximum(size - LARGEST, 1)
    # frexp returns the exponent of the next power of two, so a class is one less.
    kind = np.where(size <= LARGEST, size, LARGEST + np.frexp(beyond.astype(np.float64))[1]).astype(np.int64)
    token = 2 * kind - (step > 0)
    token[step == 0] = 0
    token[(source ^ target) & 0x8000 != 0] = _FLIP
    return token


def raw_bits() -> Counts:
    """Uncoded bits that follow each symbol."""
    bits = np.zeros(_TOKENS, np.int64)
    for kind in range(LARGEST + 1, LARGEST + _CLASSES + 1):
        bits[2 * kind - 1] = bits[2 * kind] = kind - LARGEST - 1
    bits[_FLIP] = _FLIP_BITS
    return bits


def _bits(counts: Counts) -> float:
    """Entropy of all symbols in bits, with separate probabilities for each row of counts."""
    used = counts[counts > 0].astype(np.float64)
    rows = counts.sum(1)
    rows = rows[rows > 0].astype(np.float64)
    return float((rows * np.log2(rows)).sum() - (used * np.log2(used)).sum())
