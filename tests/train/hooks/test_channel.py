"""Channels: the directions of an update, from wherever it comes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.train.hooks import confine
from maskreg.train.hooks.confine import Channel, into_channel
from tests.checkpoints import bf16, moved
from tests.flow.making import extracted, opened


def matrix(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=30)
@given(st.integers(0, 999), st.integers(1, 12), st.integers(1, 12), st.integers(1, 16))
def test_a_channel_is_the_leading_right_singular_subspace(seed: int, m: int, n: int, rank: int) -> None:
    update = matrix(seed, m, n)
    basis = Channel.of_updates([("w", update)], rank).bases["w"].double()
    kept = min(rank, m, n)
    assert basis.shape == (n, kept)
    assert torch.allclose(basis.mT @ basis, torch.eye(kept, dtype=torch.float64), atol=1e-5)
    values = torch.linalg.svdvals(update)
    inside = into_channel(update, basis)
    assert inside.square().sum().item() == pytest.approx(values[:kept].square().sum().item(), rel=1e-5)
    again = into_channel(inside, basis)
    assert torch.allclose(again, inside, atol=1e-5), "projecting twice is projecting once"


def test_the_search_in_large_matrices_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    strong = matrix(1, 60, 4) @ matrix(2, 4, 50) + 0.01 * matrix(3, 60, 50)
    exact = Channel.of_updates([("w", strong)], 4).bases["w"]
    monkeypatch.setattr(confine, "EXACT_UP_TO", 8)
    searched = Channel.of_updates([("w", strong)], 4).bases["w"]
    assert torch.allclose(exact @ exact.mT, searched @ searched.mT, atol=1e-4)


def test_stacks_have_a_channel_for_each_matrix_and_vectors_have_none() -> None:
    stack = matrix(4, 3, 6, 5)
    stack[1] = torch.outer(stack[1, :, 0], stack[1, 0])  # has one direction
    stack[2] = 0
    found = Channel.of_updates([("experts", stack), ("norm", matrix(5, 7))], 2)
    assert set(found.bases) == {"experts"}
    basis = found.bases["experts"]
    assert basis.shape == (3, 5, 2)
    alone = Channel.of_updates([("w", stack[0])], 2).bases["w"]
    assert torch.allclose(basis[0] @ basis[0].mT, alone @ alone.mT, atol=1e-6)
    assert basis[1].norm().item() == pytest.approx(1.0, abs=1e-6)
    assert (basis[2] == 0).all()
    inside = into_channel(stack, basis)
    assert torch.allclose(inside[1:].double(), stack[1:], atol=1e-5)
    assert not torch.allclose(inside[0].double(), stack[0], atol=1e-2)


def test_checkpoints_and_artifacts_give_the_same_channel(tmp_path: Path) -> None:
    before = {"a.weight": bf16((9, 8), 1), "b.weight": bf16((2, 5, 6), 2), "norm": bf16((8,), 3)}
    after = {name: moved(tensor, 0.5, 7) for name, tensor in before.items()}
    source, early = opened(tmp_path, before, after)
    pair = Channel.between(source, early, 3)
    stored = Channel.of_artifact(extracted(tmp_path / "store", source, early), source, 3)
    assert set(pair.bases) == set(stored.bases) == {"a.weight", "b.weight"}
    for name, basis in pair.bases.items():
        assert torch.equal(basis, stored.bases[name])

    def numbers(bits: np.ndarray) -> np.ndarray:
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    change = torch.from_numpy(numbers(after["a.weight"][1]) - numbers(before["a.weight"][1]))
    vh = torch.linalg.svd(change)[2][:3]
    basis = pair.bases["a.weight"].double()
    assert torch.allclose(basis @ basis.mT, vh.mT @ vh, atol=1e-5)


def test_what_is_no_pair_is_refused(tmp_path: Path) -> None:
    one = {"w": bf16((4, 4), 1), "v": bf16((4, 4), 2)}
    source, early = opened(tmp_path, one, {"w": one["w"]})
    with pytest.raises(WrongCheckpointError, match="missing in the early checkpoint"):
        Channel.between(source, early)
    with pytest.raises(UsageError, match="not finite"):
        Channel.of_updates([("w", torch.full((2, 2), torch.nan))])
    with pytest.raises(UsageError, match="rank 0"):
        Channel.of_updates([], 0)
