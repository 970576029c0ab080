"""Masks, counts and energies of blocks, in every build of the kernels."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.codec.movers import find_movers
from maskreg.flow.extract.differ import Comparing, compare, compare_movers, energy_of
from maskreg.mask import pack, packed_bytes
from maskreg.tensors.rules import parse_rule

SIZES = [0, 1, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 4095, 4097, 65_537, 1 << 18]


def sides(numel: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(numel)
    source = rng.integers(0, 1 << 16, numel).astype(np.uint16)
    # A third is equal, a third differs in the lowest bit or the sign, a third is anything.
    target = np.choose(
        rng.integers(0, 3, numel),
        [source, source ^ rng.choice(np.array([1, 0x8000], np.uint16), numel), rng.integers(0, 1 << 16, numel)],
    ).astype(np.uint16)
    source[rng.random(numel) < 0.1] = 0
    target[rng.random(numel) < 0.1] = 0x8000
    return source, target


@pytest.mark.parametrize("numel", SIZES)
def test_the_mask_and_its_counts_are_those_of_the_rule(kernels: str, numel: int) -> None:
    source, target = sides(numel)
    moved = parse_rule("exact").moved(source, target)
    packed = np.full(packed_bytes(numel), 0xFF, np.uint8)
    result = compare(source, target, packed)
    nonfinite = int((((source & 0x7F80) == 0x7F80) | ((target & 0x7F80) == 0x7F80)).sum())
    assert result[1:] == (int(moved.sum()), int((source != target).sum()), nonfinite, energy_of(source, target))
    assert np.array_equal(result.packed, pack(moved))


@pytest.mark.parametrize("numel", [64, 65, 4096 + 64, 65_537])
def test_a_block_may_be_compared_piece_by_piece(kernels: str, numel: int) -> None:
    source, target = sides(numel)
    whole = compare(source, target, np.empty(packed_bytes(numel), np.uint8))
    pieces = Comparing(np.full(packed_bytes(numel), 0xFF, np.uint8))
    for start in range(0, numel, 64):
        pieces.add(source[start : start + 64], target[start : start + 64])
    assert pieces.result[1:] == whole[1:]
    assert np.array_equal(pieces.result.packed, whole.packed)


@pytest.mark.parametrize("numel", SIZES)
def test_movers_alone_say_the_same(kernels: str, numel: int) -> None:
    source, target = sides(numel)
    movers = find_movers(source, target)
    moved, energy = compare_movers(movers, source[movers.positions])
    assert np.array_equal(movers.positions[moved], np.flatnonzero(parse_rule("exact").moved(source, target)))
    assert energy == energy_of(source, target)


@pytest.mark.parametrize("numel", SIZES)
def test_the_energy_is_the_same_to_the_last_bit(kernels: str, numel: int) -> None:
    source, target = sides(numel)
    energy = energy_of(source, target)
    finite = ((source & 0x7F80) != 0x7F80) & ((target & 0x7F80) != 0x7F80)
    before, after = (
        (np.where(finite, side, 0).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        for side in (source, target)
    )
    # Pair i is added to sum i mod 16, one after the other, and then the sums.
    rows = np.pad(np.square(after - before), (0, -numel % 16)).reshape(-1, 16)
    assert energy == sum(np.vstack([np.zeros(16), rows]).cumsum(axis=0)[-1].tolist())
