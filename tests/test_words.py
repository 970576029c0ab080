"""Numbers and lists in messages."""

from __future__ import annotations

import pytest

from maskreg.words import counted, listed


@pytest.mark.parametrize(
    ("number", "thing", "said"),
    [
        (0, "tensor", "0 tensors"),
        (1, "tensor", "1 tensor"),
        (2, "tensor", "2 tensors"),
        (1, "matrix", "1 matrix"),
        (1024, "matrix", "1,024 matrices"),
    ],
)
def test_things_are_counted(number: int, thing: str, said: str) -> None:
    assert counted(number, thing) == said


def test_verbs_agree() -> None:
    assert [counted(1, "tensor", "is"), counted(2, "tensor", "has")] == ["1 tensor is", "2 tensors have"]


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abc"), 2) == "a, b and 1 more"
    assert listed(list("abcd"), 2, separator="; ") == "a; b and 2 more"
    assert listed([]) == ""
