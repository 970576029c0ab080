"""Small blocks of every mode: from the product's encoder, and of models that it never chooses."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec import FLAT, Grid
from maskreg.codec.layout import Model
from maskreg.codec.movers import BINADES, find_movers
from maskreg.codec.sparse import SparseModel, write_sparse
from maskreg.codec.step2 import Step2
from tests.codec.writing import random_model, write

Codes = npt.NDArray[np.uint16]


class Sample(NamedTuple):
    """A block, and what it is the block of."""

    source: Codes
    target: Codes
    block: bytes


def codes(values: npt.NDArray[np.float64]) -> Codes:
    """bf16 codes of numbers, rounded to nearest."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def moved(n: int, share: float, seed: int, farthest: int = 3, literals: float = 0.0) -> tuple[Codes, Codes]:
    """Weights of which a share moved by a few ULP steps, and another share became anything."""
    draw = np.random.default_rng(seed)
    source = codes(draw.normal(0, 0.02, n))
    steps = draw.integers(-farthest, farthest + 1, n).astype(np.uint16)
    target = np.where(draw.random(n) < share, source + steps & 0x7FFF | source & 0x8000, source).astype(np.uint16)
    target[draw.random(n) < literals] = draw.integers(0, 1 << 16)
    return source, target


def matrix(rows: int, width: int, kind: str, size: float = 1e-4, seed: int = 0) -> tuple[Codes, Codes]:
    """A matrix with an update of one kind: ``low rank``, ``striped`` or ``noise``."""
    draw = np.random.default_rng(seed)
    source = codes(draw.normal(0, 0.02, (rows, width)))
    update = draw.normal(0, 1, (rows, width))
    if kind == "low rank":
        update = draw.normal(0, 1, (rows, 2)) @ draw.normal(0, 1, (2, width)) + 0.3 * update
    if kind == "striped":
        update *= np.exp(1.5 * (draw.normal(0, 1, (rows, 1)) + draw.normal(0, 1, (1, width))))
    before = (source.astype(np.uint32) << 16).view(np.float32)
    return source.reshape(-1), codes(before + size * update).reshape(-1)


def derived() -> dict[str, tuple[Codes, Codes, Grid]]:
    """Changes that are no small steps, of numbers among which some are none; by name."""
    draw = np.random.default_rng(21)
    source = codes(draw.normal(0, 0.02, 6_000))
    special = source.copy()
    special[:32] = [*range(0x7F7C, 0x7F84), *range(0xFF7C, 0xFF84), *range(0x7C, 0x84), *range(0x8000, 0x8008)]
    values = (source.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    small = source & 0x7FFF < np.median(source & 0x7FFF)
    rows, striped = source.copy(), source.copy()
    rows[[*range(83), *range(4_883, 4_983)]] ^= 3
    striped[4_883:4_983] = codes(draw.normal(0, 0.02, 100))
    others = draw.random(source.size) < 0.01
    return {
        "twice": (source, codes(2 * values), FLAT),
        "by a factor, negative, and numbers that are none": (special, special ^ np.uint16(0x8000), Grid(100, 0)),
        "by a factor, and others": (source, np.where(others, source, codes(1.375 * values)), FLAT),
        "unrelated": (source, draw.permutation(source), FLAT),
        "unrelated, and numbers that are none": (source, draw.permutation(special), FLAT),
        "small ones become 0": (source, np.where(small, 0, source), FLAT),
        "some become 0": (source, np.where(draw.random(source.size) < 0.5, source & 0x8000, source), Grid(60, 0)),
        "small ones become 0, others move": (source, np.where(small ^ others, 0, source + 1), FLAT),
        "rows": (source, rows, Grid(100, 17)),
        "a row set anew": (source, striped, Grid(100, 17)),
    }


def encoded() -> dict[str, tuple[Codes, Codes, Grid]]:
    """What the product's encoder is given, by name."""
    low, striped = matrix(64, 48, "low rank"), matrix(64, 48, "striped")
    everything = np.random.default_rng(9).integers(0, 1 << 16, 200, np.uint16)
    return {
        "same": (everything, everything, FLAT),
        "raw": (everything, everything[::-1].copy(), FLAT),
        "one token": (everything & 0x7FFF, (everything & 0x7FFF) + 1 & 0x7FFF, FLAT),
        "plain": (*moved(700, 0.4, 1), FLAT),
        "sparse": (*moved(2_500, 0.01, 2), Grid(100, 7)),
        "sparse, by one ULP": (*moved(1_100, 0.01, 10, farthest=1), FLAT),
        "sparse, far": (*moved(2_100, 0.03, 11, farthest=5_000, literals=0.01), FLAT),
        "nearly sparse": (*moved(700, 0.15, 12), FLAT),
        "far": (*moved(600, 0.1, 3, farthest=5_000), FLAT),
        "literals": (*moved(600, 0.1, 4, literals=0.1), FLAT),
        "factors": (*low, Grid(48, 0)),
        "sparse matrix": (*matrix(64, 48, "low rank", 1e-5), Grid(48, 0)),
        "factors, begins within a row": (low[0][17:2_000], low[1][17:2_000], Grid(48, 17)),
        "scales": (*striped, Grid(48, 0)),
        "noise": (*matrix(64, 48, "noise"), Grid(48, 0)),
        "scales, begins within a row": (striped[0][17:2_000], striped[1][17:2_000], Grid(48, 17)),
        **derived(),
    }


def written() -> dict[str, tuple[Codes, Codes, Model, int]]:
    """What :func:`write` is given, by name: also the number of sub-blocks."""
    long, middle, short = moved(8_500, 0.05, 5, 40, 0.01), moved(2_000, 0.05, 6, 40, 0.01), moved(400, 0.05, 7, 40)
    special = np.resize(np.array([0, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0x7FC0, 0x7FFF], np.uint16), 800)
    special[400:] |= 0x8000
    rarely = np.where(np.arange(800) % 9 == 0, special ^ 1, special)
    extreme = random_model(2_000, width=40, column=39, rank=32, factors=(-31, 31), scaled=True, scales=(-15, 15))
    plain = random_model(400, width=1 << 31, column=(1 << 31) - 1, base=245)
    flat = random_model(800, width=800, tables=1)
    flat.tables.freqs[:] = 4_096 * (np.arange(64) == 32)
    return {
        "several sub-blocks": (*long, random_model(8_500, width=90, column=5, rank=1, tables=5), 3),
        "scales and factors": (*middle, random_model(2_000, width=48, column=17, rank=2, scaled=True), 1),
        "extreme factors and scales": (*middle, extreme, 1),
        "32 tables": (*middle, random_model(2_000, width=2_000, rank=1, tables=32), 1),
        "far from its row's end, odd base": (*short, plain, 1),
        "one column": (*short, random_model(400, width=1, scaled=True), 1),
        "one frequency": (special, special, flat, 1),
        "numbers that are none, lowest base": (
            special, rarely, random_model(800, width=10, rank=1, base=0), 1,
        ),
        "numbers that are none, highest base": (
            special, rarely, random_model(800, width=10, scaled=True, base=511), 1,
        ),
    }  # fmt: skip


def sparse_model(first: int, indexes: npt.ArrayLike, share: int, longer: int = 39, top: int = 42) -> SparseModel:
    """A model with one share for all classes, and one pair of shares for all binades."""
    own = np.array(indexes, np.uint8)
    return SparseModel(first, own, np.full_like(own, share), *np.full((2, BINADES), [[longer], [top]], np.uint8))


def written_sparse() -> dict[str, tuple[Codes, Codes, SparseModel, int]]:
    """What the product's writer of sparse blocks is given, by name, as its encoder never does; also the sub-blocks."""
    long, short = moved(8_500, 0.02, 13, 40, 0.002), moved(600, 0.3, 14)
    special = np.resize(np.array([0, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0x7FC0, 0x7FFF], np.uint16), 1_600)
    special[800:] |= 0x8000
    rarely = np.where(np.arange(1_600) % 67 == 0, special ^ 1, special)
    falling, none = range(60, 28, -2), np.empty(0, np.uint8)
    return {
        "sparse, several sub-blocks": (*long, sparse_model(110, falling, 44, 60, 1), 3),
        "sparse, highest hazards": (*short, sparse_model(112, [60] * 16, 60, 0, 0), 1),
        "sparse, lowest hazards": (*short, sparse_model(100, [0] * 16, 1), 1),
        "sparse, numbers that are none": (special, rarely, sparse_model(240, [60] * 16, 0), 1),
        "sparse, one class": (special, rarely, sparse_model(0, [30] * 16, 20), 1),
        "sparse, nothing moves": (special, special, sparse_model(0, [9], 0)._replace(longer=none, tops=none), 1),
    }


@cache
def samples() -> dict[str, Sample]:
    """All samples, by name."""
    step2 = Step2()
    blocks = {name: Sample(s, t, step2.encode(s, t, grid)) for name, (s, t, grid) in encoded().items()}
    for name, (s, t, model, count) in written().items():
        blocks[name] = Sample(s, t, write(s, t, model, count=count))
    for name, (s, t, sparse, count) in written_sparse().items():
        blocks[name] = Sample(s, t, write_sparse(s, find_movers(s, t), sparse, count))
    return blocks


@cache
def many() -> tuple[Sample, ...]:
    """Blocks of so many sub-blocks that not all are decoded side by side, or in smaller tiles: too long for files."""
    blocks = []
    for count, rank in [(7, 0), (10, 1)]:
        n = 4096 * count - 77
        source, target = moved(n, 0.05, count, 40, 0.01)
        model = random_model(n, width=131, column=5, rank=rank, scaled=not rank, tables=5)
        blocks.append(Sample(source, target, write(source, target, model, count=count)))
        sparse = sparse_model(110, range(60, 28, -2), 30)
        blocks.append(Sample(source, target, write_sparse(source, find_movers(source, target), sparse, count)))
    return tuple(blocks)
