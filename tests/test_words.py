"""Numbers and lists in messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maskreg.words import counted, listed, percent, points, three_digits, times, whole


def test_things_are_counted_and_verbs_agree() -> None:
    said = {(0, "tensor"): "0 tensors", (1, "tensor"): "1 tensor", (1, "matrix"): "1 matrix"}
    said |= {(2, "tensor"): "2 tensors", (1024, "matrix"): "1,024 matrices"}
    assert {pair: counted(*pair) for pair in said} == said
    assert [counted(1, "tensor", "is"), counted(2, "tensor", "has")] == ["1 tensor is", "2 tensors have"]


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abc"), 2) == "a, b and 1 more"
    assert listed(list("abcd"), 2, separator="; ") == "a; b and 2 more"
    assert listed([]) == ""


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        (
            three_digits,
            {
                None: "-", 0: "0", 1: "1.00", 0.46371: "0.464", 12.65432: "12.7", -0.99951: "-1.00", 999.4: "999",
                999.6: "1,000", 1234567.8: "1,234,568", 0.0000123456: "1.23e-05", float("inf"): "infinite",
            },
        ),
        (percent, {None: "-", 0.0: "0 %", 1.0: "100 %", 0.4681: "46.8 %", 0.00051: "0.0510 %"}),
        (points, {None: "-", 0.0: "0 points", 0.0181: "+1.81 points", -0.02587: "−2.59 points"}),
        (times, {None: "-", 0.0: "0x", 1.0: "1.00x", 1.0649: "1.06x", 33.61: "33.6x"}),
        (whole, {None: "-", 0: "0", -0.3: "0", 0.0123: "0.0123", 5246976: "5,246,976", 1071.6: "1,072"}),
    ],
)  # fmt: skip
def test_figures_have_one_form(shown: Callable[[float | None], str], texts: dict[float | None, str]) -> None:
    assert {value: shown(value) for value in texts} == texts
