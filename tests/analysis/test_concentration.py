"""Energy in the coordinates that moved farthest, against sorting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.concentration import count_of, label, top_energies

Floats = npt.NDArray[np.float64]


def sorted_energies(update: Floats, shares: tuple[float, ...]) -> dict[str, float]:
    """The definition: squares in falling order, the first ceil(share * numel) of them (DSSU)."""
    squares = np.sort(np.square(update.reshape(-1)))[::-1]
    return {label(share): float(squares[: count_of(share, update.size)].sum()) for share in shares}


def of_blocks(update: Floats, length: int, shares: tuple[float, ...]) -> dict[str, float]:
    flat = update.reshape(-1)

    def blocks() -> Iterator[Floats]:
        return (flat[start : start + length] for start in range(0, flat.size, length))

    return top_energies(blocks, flat.size, shares)


@given(
    st.integers(1, 3000),
    st.integers(1, 1000),
    st.integers(0, 1 << 32),
    st.sampled_from(["normal", "few values", "one magnitude", "nearly equal", "mostly zero"]),
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_top_energies_are_those_of_sorted_squares(
    numel: int, length: int, seed: int, kind: str, shares: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    update: npt.NDArray[Any] = rng.standard_t(3, numel) * 1e-4
    if kind == "few values":
        update = rng.choice([-3.0, -1.0, 0.0, 1.0, 2.0], numel) * 2.0**-14
    elif kind == "one magnitude":
        update = rng.choice([-0.5, 0.5], numel)
    elif kind == "nearly equal":
        # One class of upper bits: only the second histogram tells them apart.
        update = 1 + rng.integers(0, 1 << 16, numel) * 2.0**-23
    elif kind == "mostly zero":
        update[rng.random(numel) < 0.97] = 0
    update = np.asarray(update.astype(np.float32), np.float64)
    chosen = tuple(dict.fromkeys(round(share, 3) for share in shares))
    assert of_blocks(update, length, chosen) == pytest.approx(sorted_energies(update, chosen), rel=1e-12, abs=1e-300)
