"""Models as bits: every build of the kernels writes the same, reads it back, and refuses the same damage."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.base import Grid
from maskreg.codec.contexts import Contexts
from maskreg.codec.layout import Model, ModelShape, pack_model, side_bits, unpack_model
from maskreg.codec.tables import SLOTS, Tables
from maskreg.codec.ulp_steps import LITERAL, MIDDLE, TOKENS
from tests.kernels import agreed

KNOWN = [*range(5, 60), LITERAL]
EDGES = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1_023, 1_024, 1_025]


def model(rows: int, width: int, rank: int, *, scaled: bool, seed: int, spread: float = 2.0) -> Model:
    """Random scales, factors and tables."""
    draw = np.random.default_rng(seed)

    def lines(shape: tuple[int, ...], most: int) -> npt.NDArray[np.int8]:
        return np.clip(np.rint(draw.laplace(0, spread, shape)), -most, most).astype(np.int8)

    contexts = Contexts(Grid(width, 0), 200)
    if scaled or rank:
        contexts = Contexts(
            Grid(width, 0), 200, lines((rows * scaled,), 15), lines((width * scaled,), 15),
            lines((rank, rows), 31), lines((rank, width), 31),
            (draw.integers(0, 1 << 15, 7) if rank else np.zeros(7)).astype(np.int16),
        )  # fmt: skip
    count = int(draw.integers(1, 33))
    freqs = np.zeros((count, TOKENS), np.uint16)
    for row in freqs:
        tokens = draw.choice(KNOWN, draw.integers(1, len(KNOWN)), replace=False)
        row[tokens] = draw.multinomial(SLOTS, draw.dirichlet(np.full(tokens.size, 0.3)))
    # Cells that follow each other mostly have the same table.
    numbers = draw.integers(0, count, contexts.cells)
    of_cell = np.where(draw.random(contexts.cells) < 0.5, numbers, numbers[0]).astype(np.uint8)
    return Model(contexts, Tables(of_cell, freqs))


def shape_of(packed: Model) -> ModelShape:
    """What a block's header says of it."""
    contexts = packed.contexts
    rows = contexts.row_factors.shape[1] if contexts.rank else max(1, contexts.row_scales.size)
    n = rows * contexts.grid.width
    return ModelShape(n, contexts.grid, contexts.base, contexts.scaled, contexts.rank, len(packed.tables.freqs))


def arrays_of(unpacked: Model | None) -> list[bytes] | None:
    """All of its arrays; None when it was refused."""
    if unpacked is None:
        return None
    contexts, tables = unpacked.contexts, unpacked.tables
    arrays = (
        contexts.row_scales, contexts.column_scales, contexts.row_factors, contexts.column_factors, contexts.bounds,
        tables.of_cell, tables.freqs,
    )  # fmt: skip
    return [array.tobytes() for array in arrays]


def read(packed: bytes, shape: ModelShape) -> list[bytes] | None:
    """Arrays of the model in ``packed``."""
    return arrays_of(unpack_model(np.frombuffer(packed, np.uint8), shape))


def assert_comes_back(written: Model) -> None:
    """Every build writes the same bits, and reads them back; ``side_bits`` gives the size of scales and factors."""
    packed, bits, *arrays = agreed(
        lambda: [
            np.frombuffer(packed := pack_model(written), np.uint8),
            side_bits(written.contexts),
            *(read(packed, shape_of(written)) or ()),
        ]
    )
    assert arrays == arrays_of(written)
    tables = pack_model(Model(Contexts(Grid(1, 0), 200), written.tables))
    assert 0 <= 8 * len(packed) - (bits + 7 * 15 * (written.contexts.rank > 0) + 8 * len(tables)) + 7 < 15


@given(
    st.sampled_from(EDGES), st.sampled_from(EDGES), st.sampled_from([0, 1, 2, 5]), st.booleans(),
    st.integers(0, 1 << 32), st.sampled_from([0.2, 2.0, 30.0]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_models_come_back(rows: int, width: int, rank: int, scaled: bool, seed: int, spread: float) -> None:
    assert_comes_back(model(rows, width, rank, scaled=scaled, seed=seed, spread=spread))


def test_the_longest_model_comes_back() -> None:
    assert_comes_back(model(9_000, 300, 32, scaled=True, seed=0, spread=10.0))


def _found(packed: bytes, shape: ModelShape) -> list[npt.NDArray[np.bytes_]]:
    return [np.array(read(packed, shape) or [], np.bytes_)]


@pytest.mark.parametrize(("rank", "scaled"), [(0, False), (0, True), (2, False), (3, True)])
def test_damaged_models_are_read_alike_by_every_build(rank: int, scaled: bool) -> None:
    draw = random.Random(rank)
    whole = model(50, 40, rank, scaled=scaled, seed=rank + 10, spread=6.0)
    packed, shape = pack_model(whole), shape_of(whole)
    refused = 0
    for _ in range(100):
        hostile = bytearray(packed[: draw.choice([len(packed)] * 3 + [draw.randrange(len(packed))])])
        for _ in range(draw.randrange(4)):
            if hostile:
                hostile[draw.randrange(len(hostile))] = draw.choice([0, 255, draw.randrange(256)])
        claimed = shape._replace(
            tables=draw.choice([shape.tables] * 4 + [1, 32]), rank=draw.choice([rank] * 4 + [0, 32])
        )
        (found,) = agreed(partial(_found, bytes(hostile), claimed))
        refused += not found.size
    assert 10 < refused < 100


@pytest.mark.parametrize("most", [15, 31])
def test_values_out_of_range_are_refused(kernels: str, most: int) -> None:
    for value in (most, -most, most + 1, -most - 1, 100, -128):
        whole = model(30, 20, int(most == 31), scaled=most == 15, seed=1)
        lines = whole.contexts.column_scales if most == 15 else whole.contexts.column_factors[0]
        lines[:] = value
        packed = pack_model(whole)
        assert (read(packed, shape_of(whole)) is None) == (abs(value) > most)
        lines[:-1] = 0
        packed = pack_model(whole)
        assert (read(packed, shape_of(whole)) is None) == (abs(value) > most)


def test_nothing_may_be_left_over(kernels: str) -> None:
    whole = model(30, 20, 1, scaled=True, seed=3)
    packed, shape = pack_model(whole), shape_of(whole)
    assert read(packed, shape) is not None
    for wrong in (packed[:-1], packed + b"\0", b""):
        assert read(wrong, shape) is None


@pytest.mark.parametrize(
    ("table", "freqs"),
    [
        pytest.param(0, {MIDDLE: 4_095}, id="too few slots"),
        pytest.param(0, {MIDDLE: 4_096, LITERAL: 1}, id="too many slots"),
        pytest.param(0, {MIDDLE: 4_000, 62: 96}, id="a token that is none"),
        pytest.param(0, {4: 4_096}, id="a step too far"),
        pytest.param(1, {MIDDLE: 4_096}, id="a table that is not there"),
        pytest.param(31, {MIDDLE: 4_096}, id="the last table there can be"),
    ],
)
def test_invalid_tables_are_refused(kernels: str, table: int, freqs: dict[int, int]) -> None:
    valid = Model(Contexts(Grid(1, 0), 0), Tables(np.zeros(16, np.uint8), np.zeros((1, TOKENS), np.uint16)))
    valid.tables.freqs[0, MIDDLE] = SLOTS
    assert read(pack_model(valid), shape_of(valid)) is not None
    valid.tables.of_cell[5:] = table
    valid.tables.freqs[:] = [[freqs.get(token, 0) for token in range(TOKENS)]]
    assert read(pack_model(valid), shape_of(valid)) is None
