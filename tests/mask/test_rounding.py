"""The rounding null against the error function, and against noise that is really added and rounded."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.mask import rounding
from maskreg.mask.rounding import CLASSES, FINENESS, classes_of, fit_scale, flip_chances
from maskreg.tensors.cast import to_bf16

Codes = npt.NDArray[np.uint16]


def rounded(values: npt.NDArray[np.float64]) -> Codes:
    return to_bf16(values.astype(np.float32).view(np.uint32), "F32")


def number(code: int) -> float:
    return float(np.array([code << 16], np.uint32).view(np.float32)[0])


def test_every_code_has_its_class(kernels: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    expected = [((c >> 7) & 0xFF) * 2 + (c & 0x7F == 0) for c in range(1 << 16)]
    assert classes_of(codes).tolist() == expected
    for numel in (0, 1, 15, 16, 17, 63, 65):
        assert classes_of(codes[:numel]).tolist() == expected[:numel]
    assert classes_of(codes.reshape(256, 256)).shape == (256, 256)


@pytest.mark.parametrize("scale", [-30 * FINENESS, -9 * FINENESS + 17, -12 * FINENESS, 0, 100, -133 * FINENESS])
def test_chances_against_the_error_function(scale: int) -> None:
    chances = flip_chances(scale)
    s = 2.0 ** (scale / FINENESS)
    for code in [*range(0x0080, 0x7F00, 0x40), 0x0001, 0x0040, 0x007F]:
        up = (number(code + 1) - number(code)) / 2
        down = (number(code) - number(code - 1)) / 2
        expected = (math.erfc(up / s / math.sqrt(2)) + math.erfc(down / s / math.sqrt(2))) / 2
        assert chances[classes_of(np.array([code], np.uint16))[0]] == pytest.approx(expected, abs=1e-9)


def test_tails_are_rounded_as_in_decimal_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    distances = np.arange(-40 * FINENESS + 1, 3 * FINENESS)
    monkeypatch.setattr(rounding, "_TAILS", np.full_like(rounding._TAILS, -1))
    exact = [rounding.round_exactly(distance) for distance in distances.tolist()]
    assert rounding._tails(distances).tolist() == exact


def test_what_is_not_finite_never_moves() -> None:
    assert flip_chances(120 * FINENESS)[-2:].tolist() == [0.0, 0.0]
    assert flip_chances(160 * FINENESS)[:-2].min() == 1.0


@pytest.mark.parametrize("octave", [-8.0, -9.5, -11.0])
def test_chances_against_noise(octave: float) -> None:
    """b(w + s z) of a million weights moves as often as it should, class by class, within five deviations."""
    rng = np.random.default_rng(5)
    source = rounded(rng.normal(0, 0.03, 1 << 20))
    values = (source.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    scale = round(octave * FINENESS)
    moved = rounded(values + 2.0 ** (scale / FINENESS) * rng.standard_normal(source.size)) != source
    chances, classes = flip_chances(scale), classes_of(source)
    tried = np.bincount(classes, minlength=CLASSES)
    for kind in np.flatnonzero(tried > 2000):
        share, chance = moved[classes == kind].mean(), chances[kind]
        # Noise of the size of the weight itself may leave the binade; that is far beyond what these scales do to most.
        if (kind >> 1) - 127 > octave + 3:
            assert abs(share - chance) < 5 * math.sqrt(max(chance * (1 - chance), 1e-4) / tried[kind])


def test_more_noise_moves_more() -> None:
    chances = [flip_chances(scale) for scale in range(-12 * FINENESS, -4 * FINENESS, 100)]
    assert all((more >= less).all() for less, more in pairwise(chances))


@given(st.integers(0, 1 << 32), st.integers(1, 20_000), st.floats(0.001, 0.999))
@settings(max_examples=20)
def test_the_scale_is_the_smallest_that_explains_the_number(seed: int, numel: int, density: float) -> None:
    source = rounded(np.random.default_rng(seed).normal(0, 0.02, numel + 1))
    members = np.bincount(classes_of(source), minlength=CLASSES)
    nnz = max(1, int(density * numel))
    scale = fit_scale(members, nnz)
    assert float((members * flip_chances(scale)).sum()) >= nnz
    assert float((members * flip_chances(scale - 1)).sum()) < nnz


def test_the_scale_grows_with_the_number() -> None:
    members = np.bincount(classes_of(rounded(np.random.default_rng(1).normal(0, 0.02, 50_000))), minlength=CLASSES)
    scales = [fit_scale(members, nnz) for nnz in range(1, 50_000, 4999)]
    assert scales == sorted(scales)
    assert len(set(scales)) == len(scales)


@pytest.mark.parametrize("nnz", [0, 10])
def test_none_or_all_tell_no_scale(nnz: int) -> None:
    members = np.zeros(CLASSES, np.int64)
    members[200] = 10
    with pytest.raises(ValueError, match="nothing moved" if nnz == 0 else "everything moved"):
        fit_scale(members, nnz)


def test_noise_cannot_move_what_is_not_finite() -> None:
    members = np.zeros(CLASSES, np.int64)
    members[200], members[-1] = 5, 5
    with pytest.raises(ValueError, match="6 moved, but only 5 are finite, and noise moves no others"):
        fit_scale(members, 6)
