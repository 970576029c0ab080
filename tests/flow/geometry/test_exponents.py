from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint
from maskreg.flow.geometry.exponents import by_exponent
from maskreg.mask.rounding import classes_of
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.making import BLOCK, bits, edge_pair, extracted, opened
from tests.mask.reference import chances_by_rounding


def made(
    folder: Path, source: dict[str, Tensor], target: dict[str, Tensor], **options: Any
) -> tuple[Artifact, Checkpoint]:
    pair = opened(folder, source, target)
    return extracted(folder / "home", *pair, mask_only=True, **options), pair[0]


def codes(tensor: Tensor) -> npt.NDArray[np.uint16]:
    return np.asarray(tensor[1], np.uint16).reshape(-1)


def test_counts_are_those_of_a_loop_over_coordinates(tmp_path: Path) -> None:
    source, target = edge_pair()
    source["long"] = bf16((BLOCK + 130,), 9)
    target["long"] = moved(source["long"], 0.3, 4)
    artifact, checkpoint = made(tmp_path, source, target)
    found = by_exponent(artifact, checkpoint)
    members, changed = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for name, (dtype, _) in source.items():
        if dtype == "BF16":
            exponents = codes(source[name]) >> 7 & 0xFF
            mask = artifact.mask[name].to_bool().reshape(-1)
            np.add.at(members, exponents, 1)
            np.add.at(changed, exponents[mask], 1)
    np.testing.assert_array_equal(found.members, members)
    np.testing.assert_array_equal(found.moved, changed)
    assert found.left_out == ("half",)
    assert found.reason != ""  # noise moves neither infinities nor NaNs, and here some moved
    assert found.expected is None


def test_the_null_is_that_of_each_tensor_added_up(tmp_path: Path) -> None:
    source = {"small": bf16((300, 70), 1, 0.01), "large": bf16((200, 50), 2, 0.5), "all": bf16((30,), 3)}
    target = {n: moved(t, 0.3 + i / 10, i) for i, (n, t) in enumerate(source.items())}
    target["all"] = bits(codes(source["all"]) ^ 1)
    source["none"] = target["none"] = bf16((40,), 5)
    artifact, checkpoint = made(tmp_path, source, target)
    found = by_exponent(artifact, checkpoint)
    expected, apart = np.zeros(256), 0.0
    for name in source:
        classes = classes_of(codes(source[name]))
        mask = artifact.mask[name].to_bool().reshape(-1)
        members, inside = (np.bincount(c, minlength=512) for c in (classes, classes[mask]))
        here = inside.astype(float)
        if 0 < mask.sum() < mask.size:
            here = members * chances_by_rounding(members, int(mask.sum()))
        apart += np.abs(inside - here).sum()
        np.add.at(expected, np.arange(512) >> 1, here)
    assert found.expected is not None
    np.testing.assert_allclose(found.expected, expected, rtol=1e-9, atol=1e-9)
    assert found.elsewhere == pytest.approx(apart / 2 / found.moved.sum())
    assert found.expected.sum() == pytest.approx(found.moved.sum())
    assert (found.left_out, found.reason) == ((), "")


def test_a_rule_that_hides_flips_has_no_null(tmp_path: Path) -> None:
    source = {"a": bf16((400, 50), 1)}
    found = by_exponent(*made(tmp_path, source, {"a": moved(source["a"], 0.4)}, rule="abs:1e-5"))
    assert (found.expected, found.elsewhere) == (None, None)
    assert found.reason.startswith("rule abs:1e-05 hides flips")
    assert found.moved.sum() > 0
