"""Classes of codes, and chances to flip: against decimal arithmetic, noise that is really added, and exact scales."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.mask.rounding import (
    CLASSES,
    FINENESS,
    OFF_GRID,
    ON_GRID,
    WORDS,
    Start,
    classes_of,
    drawing_chances,
    fit_flips,
    fit_scale,
    off_grid_words,
    tail_words,
)
from maskreg.tensors.cast import to_bf16
from tests.mask.reference import chances_by_rounding

Codes = npt.NDArray[np.uint16]
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
EITHER = pytest.mark.parametrize("start", [ON_GRID, OFF_GRID], ids=["on the grid", "off the grid"])


def rounded(values: npt.NDArray[np.float64]) -> Codes:
    return to_bf16(values.astype(np.float32).view(np.uint32), "F32")


def number(code: int) -> float:
    return float(np.array([code << 16], np.uint32).view(np.float32)[0])


def tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def mean_over_cell(down: float, up: float, s: float) -> float:
    """Mean chance to leave the cell from -down to up, from a place that is uniform in it: the midpoint rule."""
    places = [-down + (up + down) * (k + 0.5) / 2000 for k in range(2000)]
    return sum(tail((up - x) / s) + tail((x + down) / s) for x in places) / len(places)


def exact_tail(x: Decimal) -> Decimal:
    """Q of a decimal number, from the series of its integral: sum of (-1)^k x^(2k+1) / (2^k k! (2k+1))."""
    if x > 9:
        return Decimal(0)
    total, term, k = Decimal(0), x, 0
    while abs(term) > Decimal(10) ** -45:
        total += term / (2 * k + 1)
        k += 1
        term = -term * x * x / (2 * k)
    return Decimal(1) / 2 - total / Decimal(
        "2.506628274631000502415765284811045253006986740609938316629923576342293654608"
    )


def test_every_code_has_its_class(kernels: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    expected = [((c >> 7) & 0xFF) * 2 + (c & 0x7F == 0) for c in range(1 << 16)]
    assert classes_of(codes).tolist() == expected
    for numel in (0, 1, 15, 16, 17, 63, 65):
        assert classes_of(codes[:numel]).tolist() == expected[:numel]
    assert classes_of(codes.reshape(256, 256)).shape == (256, 256)


@pytest.mark.parametrize("octave", [-30.0, -9.0 + 17 / 256, -12.0, 0.0, 0.4, -133.0])
@EITHER
def test_chances_are_those_of_the_cells_of_codes(octave: float, start: Start) -> None:
    scale = round(octave * FINENESS)
    chances, s = drawing_chances(scale, start), 2.0 ** (scale / FINENESS)
    for code in [*range(0x0080, 0x7F00, 0x40 if start is ON_GRID else 0x480), 0x0001, 0x0040, 0x007F]:
        up = (number(code + 1) - number(code)) / 2
        down = (number(code) - number(code - 1)) / 2
        if start is ON_GRID:
            expected, error = tail(up / s) + tail(down / s), 1e-9
        else:
            # Noise far finer than a cell needs finer steps: there it is s / c sqrt(2 / pi).
            fine = s / (up + down) < 0.01
            expected = s / (up + down) * math.sqrt(2 / math.pi) if fine else mean_over_cell(down, up, s)
            error = 1e-5
        assert chances[classes_of(np.array([code], np.uint16))[0]] == pytest.approx(expected, abs=error)


def test_words_are_rounded_as_in_decimal_arithmetic() -> None:
    """Of 3,000 distances, some are so near to the border between two multiples that the last digits decide."""
    rng = np.random.default_rng(0)
    doubtful = 0
    with localcontext() as context:
        context.prec = 80
        root = (2 * PI).sqrt()
        for distance in rng.integers(-12 * FINENESS, 3 * FINENESS, 1500).tolist():
            x = Decimal(2) ** (Decimal(distance) / FINENESS)
            exact = exact_tail(x) * WORDS
            assert tail_words(distance) == exact.to_integral_value(), distance
            doubtful += abs(exact % 1 - Decimal("0.5")) < Decimal("0.002")
            for halved, factor in ((False, Decimal(2)), (True, Decimal("1.5"))):
                c = factor * x
                exact = (2 * (1 - (-c * c / 2).exp()) / root / c + 2 * exact_tail(c)) * WORDS
                assert off_grid_words(distance, halved) == exact.to_integral_value(), distance
                doubtful += abs(exact % 1 - Decimal("0.5")) < Decimal("0.002")
    assert doubtful > 3


@EITHER
def test_what_is_not_finite_never_moves(start: Start) -> None:
    assert drawing_chances(120 * FINENESS, start)[-2:].tolist() == [0.0, 0.0]
    assert drawing_chances(170 * FINENESS, start)[:-2].min() == 1.0
    members = np.zeros(CLASSES, np.int64)
    members[200], members[-1] = 7, 3
    assert fit_flips(members, 6, start)[[200, 511]].tolist() == pytest.approx([6 / 7, 0])
    assert fit_flips(members, 7, start)[[200, 511]].tolist() == [1.0, 0.0]
    assert drawing_chances(fit_scale(members, 7, start), start)[200] == 1


@given(st.integers(0, 1 << 32), st.integers(1, 20_000), st.floats(0.001, 0.999))
@settings(max_examples=20)
@EITHER
def test_the_scale_of_a_draw_is_the_smallest_that_explains_the_number(
    start: Start, seed: int, numel: int, density: float
) -> None:
    source = rounded(np.random.default_rng(seed).normal(0, 0.02, numel + 1))
    members = np.bincount(classes_of(source), minlength=CLASSES)
    nnz = max(1, int(density * numel))
    scale = fit_scale(members, nnz, start)
    assert float((members * drawing_chances(scale, start)).sum()) >= nnz
    assert float((members * drawing_chances(scale - 1, start)).sum()) < nnz


def normal_members(numel: int) -> npt.NDArray[np.int64]:
    return np.bincount(classes_of(rounded(np.random.default_rng(1).normal(0, 0.02, numel))), minlength=CLASSES)


@pytest.mark.parametrize("nnz", [1, 5, 777, 19_000, 39_999])
@EITHER
def test_chances_sum_to_the_number_and_are_those_of_one_scale(nnz: int, start: Start) -> None:
    members = normal_members(40_000)
    chances = fit_flips(members, nnz, start)
    assert math.fsum(members * chances) == pytest.approx(nnz, rel=1e-12)
    # The scale that a draw has is next to it: a millionth of an octave away.
    drawn = drawing_chances(fit_scale(members, nnz, start), start)
    assert chances[members > 0] == pytest.approx(drawn[members > 0], rel=2e-5, abs=1 / WORDS)


def test_expectations_are_right_to_the_last_digits() -> None:
    """Against a bisection of the scale; interpolation between scales that are 1/256 octave apart is off by 4.9e-7."""
    members = normal_members(1 << 20)
    for nnz in (300_000, 700_000):
        fitted, bisected = fit_flips(members, nnz), chances_by_rounding(members, nnz)
        assert float(members @ fitted**2) == pytest.approx(float(members @ bisected**2), rel=1e-12)


@EITHER
@pytest.mark.parametrize("zeros", [1, 1000])
def test_weights_of_zero_do_not_keep_a_scale_from_being_found(zeros: int, start: Start) -> None:
    # They flip at far smaller scales than all others: between, nothing changes with the scale.
    members = np.zeros(CLASSES, np.int64)
    members[1] = zeros
    members[196:230:2] = 2 ** np.arange(17)
    nnz = int(members.sum()) // 5
    assert float(members @ fit_flips(members, nnz, start)) == pytest.approx(nnz, rel=1e-12)


def test_none_or_all_tell_no_scale() -> None:
    members = np.zeros(CLASSES, np.int64)
    members[200] = 10
    assert fit_flips(members, 0).max() == 0
    assert fit_flips(members, 10).min() == 1
    for nnz in (0, 10):
        with pytest.raises(ValueError):
            fit_scale(members, nnz)
    members[511] = 5
    with pytest.raises(ValueError, match=r"\b11 .*\b10 "):
        fit_flips(members, 11)
