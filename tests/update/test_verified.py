from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import WrongCheckpointError
from maskreg.tensors.cast import to_bf16
from maskreg.update.verified import RecordedSide, VerifiedSource
from tests.checkpoints import Tensor, bf16, f32, make_checkpoint, moved
from tests.flow.making import LEAF, edge_pair, extracted, opened

Tensors = dict[str, Tensor]


def flipped(tensor: Tensor, element: int) -> Tensor:
    """The same tensor with another last bit of one element."""
    dtype, values = tensor
    values = values.copy()
    values.reshape(-1)[element] ^= 1
    return dtype, values


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Tensors, Tensors]:
    large = bf16((4 * LEAF + 5,), 1)
    source: Tensors = {"large": large, "small": bf16((3, 4), 2), "wide": f32((9,), 3)}
    return source, {**source, "large": moved(large, 0.1), "small": moved(source["small"], 0.5)}


@pytest.fixture
def artifact(pair: tuple[Tensors, Tensors], tmp_path: Path) -> Artifact:
    return extracted(tmp_path / "root", *opened(tmp_path, *pair), reversible=True)


def checkpoint(tmp_path: Path, tensors: Tensors) -> Checkpoint:
    return open_checkpoint(make_checkpoint(tmp_path / "at_hand", tensors))


CHANGES = [
    pytest.param(lambda t: t.pop("small"), "small: ", id="missing"),
    pytest.param(lambda t: t.update(more=bf16((2,))), "more: ", id="surplus"),
    pytest.param(lambda t: t.update(small=bf16((4, 3))), r"small: BF16 \[4, 3\] .*BF16 \[3, 4\]", id="shape"),
    pytest.param(lambda t: t.update(small=f32((3, 4))), r"small: F32 \[3, 4\] ", id="dtype"),
    pytest.param(lambda t: t.update(large=flipped(t["large"], 7)), r"large: .*\b0\.\.", id="first leaf"),
    pytest.param(lambda t: t.update(large=flipped(t["large"], -1)), r"large: .*\b1048576\.\.", id="last leaf"),
    pytest.param(lambda t: t.update(wide=flipped(t["wide"], 4)), r"wide: .*\b0\.\.", id="uncoded"),
]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_another_checkpoint_is_refused_at_once(
    change: Callable[[Tensors], object],
    message: str,
    side: str,
    pair: tuple[Tensors, Tensors],
    artifact: Artifact,
    tmp_path: Path,
) -> None:
    tensors = dict(pair[side == "target"])
    VerifiedSource(artifact, open_checkpoint(tmp_path / side), side="target" if side == "target" else "source")
    change(tensors)
    with pytest.raises(WrongCheckpointError, match=message) as caught:
        VerifiedSource(artifact, checkpoint(tmp_path, tensors), side="target" if side == "target" else "source", jobs=2)
    assert f" {side} " in caught.value.hint and "sha256:" in caught.value.hint


def test_every_leaf_that_is_read_is_checked(pair: tuple[Tensors, Tensors], artifact: Artifact, tmp_path: Path) -> None:
    source = dict(pair[0])
    source["large"] = flipped(source["large"], 2 * LEAF)
    verified = VerifiedSource(artifact, checkpoint(tmp_path, source))
    assert np.array_equal(verified.read("large", 0, 2 * LEAF), pair[0]["large"][1][: 2 * LEAF])
    for read in (verified.read, verified.codes):
        with pytest.raises(WrongCheckpointError, match=r"large: .*\b524288\.\."):
            read("large", LEAF, 4 * LEAF)
    assert verified.codes("large", 2 * LEAF - 1, 2 * LEAF + 1, checked=False).size == 2


def test_codes_of_a_wider_dtype_are_cast(pair: tuple[Tensors, Tensors], artifact: Artifact, tmp_path: Path) -> None:
    verified = VerifiedSource(artifact, open_checkpoint(tmp_path / "source"))
    assert np.array_equal(verified.codes("wide", 0, 9), to_bf16(pair[0]["wide"][1], "F32"))


def test_of_the_tensors_that_matter_alone(pair: tuple[Tensors, Tensors], artifact: Artifact, tmp_path: Path) -> None:
    source = {"large": pair[0]["large"], "small": flipped(pair[0]["small"], 0), "more": bf16((2,))}
    at_hand = checkpoint(tmp_path, source)
    VerifiedSource(artifact, at_hand, only=["large"])
    with pytest.raises(WrongCheckpointError, match=r"small: .*\b0\.\."):
        VerifiedSource(artifact, at_hand, only=["large", "small"])
    with pytest.raises(WrongCheckpointError, match="wide: "):
        VerifiedSource(artifact, at_hand, only=["wide"])


def test_many_threads_read(pair: tuple[Tensors, Tensors], artifact: Artifact, tmp_path: Path) -> None:
    verified = VerifiedSource(artifact, open_checkpoint(tmp_path / "source"))
    spans = [("large", start, start + LEAF) for start in range(0, 4 * LEAF, LEAF)] + [("small", 0, 12)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda span: verified.read(*span), spans * 8))
    for (name, start, stop), values in zip(spans * 8, results, strict=True):
        assert np.array_equal(values, pair[0][name][1].reshape(-1)[start:stop])


def test_a_side_knows_its_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    source, target = opened(tmp_path, *edge_pair())
    artifact = extracted(tmp_path / "root", source, target)
    before, after = RecordedSide(artifact), RecordedSide(artifact, "target")
    assert (before.matches(source), before.matches(target)) == (True, False)
    assert (after.matches(source), after.matches(target)) == (False, True)
    tensors = edge_pair()[0]
    middle = {**tensors, "large": flipped(tensors["large"], LEAF + 3)}
    assert not before.matches(checkpoint(tmp_path, middle))
