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
from tests.checkpoints import Tensor, bf16, f16, moved
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


def rounded(tensor: Tensor, scale: float, seed: int) -> Tensor:
    """What Gaussian noise of that scale leaves of a tensor after the cast: an update that knows nothing of weights."""
    values = (codes(tensor).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    noisy = (values + np.random.default_rng([seed, 1]).normal(0, scale, values.size)).astype(np.float32).view(np.uint32)
    nearest = (noisy + 0x7FFF + (noisy >> 16 & 1)) >> 16
    return "BF16", nearest.astype(np.uint16).reshape(tensor[1].shape)


def test_what_rounding_made_lies_where_rounding_would_put_it(tmp_path: Path) -> None:
    source = {f"layer{n}": bf16((400, 500), n) for n in range(4)}
    target = {n: rounded(t, 3e-5, i) for i, (n, t) in enumerate(source.items())}
    found = by_exponent(*made(tmp_path / "a", source, target))
    assert found.elsewhere is not None
    assert found.elsewhere_by_chance is not None
    assert 0.5 * found.elsewhere_by_chance < found.elsewhere < 2 * found.elsewhere_by_chance < 0.03
    # What takes no account of magnitude lies elsewhere.
    other = by_exponent(*made(tmp_path / "b", source, {n: moved(t, 0.2, i) for i, (n, t) in enumerate(source.items())}))
    assert other.elsewhere is not None
    assert other.elsewhere > 0.3


def test_a_mask_of_nothing(tmp_path: Path) -> None:
    source = {"a": bf16((40, 50), 1), "b": f16((9,), 2)}
    found = by_exponent(*made(tmp_path, source, source))
    assert found.elsewhere is None
    assert found.expected is not None
    assert found.expected.sum() == 0
    assert found.members.sum() == 2000
