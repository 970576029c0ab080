"""Deltas that are staged while a model is in use, and committed at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskreg.artifact.reader import Artifact
from maskreg.errors import WrongCheckpointError
from maskreg.flow.apply.in_memory import stage
from maskreg.flow.apply.moving import Patch, patch_of, swaps_between
from maskreg.flow.apply.shared_swaps import Swaps
from maskreg.update.delta import Delta
from tests.checkpoints import Tensor, bf16, f32, moved
from tests.flow.apply.test_in_memory import holds, live
from tests.flow.making import BLOCK, LEAF, edge_pair, extracted, opened

Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Tensors], list[Artifact]]:
    """A checkpoint of every kind of tensor, what three steps made of it, and the links between."""
    folder = tmp_path_factory.mktemp("steps")
    source, target = edge_pair()
    states = [source | {"router": f32((9,), 1), "long": bf16((BLOCK + LEAF + 3,), 1)}]
    states.append(target | {"router": f32((9,), 2), "long": moved(states[0]["long"], 0.01, 1)})
    for seed in (2, 3):
        states.append({**states[-1], "long": moved(states[-1]["long"], 0.05, seed), "router": f32((9,), seed)})
    links = [
        extracted(folder / f"{n}/root", *opened(folder / str(n), *states[n : n + 2]), reversible=True) for n in range(3)
    ]
    return states, links


def deltas(links: list[Artifact], *, revert: bool = False) -> Callable[[], list[Delta]]:
    return lambda: [Delta(link, revert=revert) for link in links]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_links_are_one_change_which_only_a_commit_writes(
    steps: tuple[list[Tensors], list[Artifact]], count: int
) -> None:
    states, links = steps
    model = live(states[0])
    staged = stage(model, deltas(links[:count]), jobs=2)
    assert holds(model, states[0])
    differing = sum(int(np.count_nonzero(states[0][name][1] != states[count][name][1])) for name in states[0])
    assert staged.moved == differing
    staged.commit()
    assert holds(model, states[count])
    stage(model, deltas(links[count - 1 :: -1], revert=True)).commit()
    assert holds(model, states[0])


def test_a_refusal_is_not_held_by_its_own_frames(steps: tuple[list[Tensors], list[Artifact]]) -> None:
    """Views of blocks in such a cycle can crash CPython's collector."""
    states, links = steps
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with suppress(WrongCheckpointError):
            stage(live(states[2]), deltas(links[:1]), jobs=2)
        gc.collect()
        assert not [found for found in gc.garbage if isinstance(found, TracebackType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_memory_that_is_transposed_or_cut_out_of_another_is_written_in_place(tmp_path: Path) -> None:
    source: Tensors = {"a": bf16((7, 5), 1), "b": bf16((6, 4, 3), 2), "c": bf16((9,), 3)}
    target = {name: moved(tensor, 0.5) for name, tensor in source.items()}
    link = extracted(tmp_path / "root", *opened(tmp_path, source, target))
    around = torch.zeros(9, 8, 8, dtype=torch.bfloat16)
    places = {"a": around[0, :5, :7].T, "b": around[1:7, 2:6, ::3], "c": around[8, 1, :1].expand(1).repeat(9)}
    for name, tensor in live(source).items():
        places[name].copy_(tensor)
    before = around.clone()
    staged = stage(places, deltas([link]))
    assert torch.equal(around, before)
    staged.commit()
    assert holds(places, target)
    inside = torch.zeros_like(around, dtype=torch.bool)
    inside[0, :5, :7] = inside[1:7, 2:6, ::3] = True
    assert torch.equal(around[~inside], before[~inside])


def test_a_model_that_changed_in_between_is_left_alone(steps: tuple[list[Tensors], list[Artifact]]) -> None:
    states, links = steps
    model = live(states[0])
    staged = stage(model, deltas(links))
    (place,) = np.flatnonzero(states[0]["long"][1] != states[3]["long"][1])[-1:]
    model["long"].view(torch.int16)[place] ^= 1
    changed = {name: tensor.clone() for name, tensor in model.items()}
    with pytest.raises(WrongCheckpointError) as caught:
        staged.commit()
    assert caught.value.tensor == "long"
    assert all(torch.equal(model[name].nan_to_num(7), changed[name].nan_to_num(7)) for name in ("long", "router"))
    model["long"].view(torch.int16)[place] ^= 1
    staged.commit()
    assert holds(model, states[3])


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_write_that_fails_is_undone(
    steps: tuple[list[Tensors], list[Artifact]], fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, links = steps
    model, calls = live(states[0]), 0
    staged, exchange = stage(model, deltas(links), jobs=1), Patch.exchange

    def failing(patch: Patch) -> int:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise RuntimeError("the device went away")
        return exchange(patch)

    monkeypatch.setattr(Patch, "exchange", failing)
    with pytest.raises(RuntimeError, match="went away"):
        staged.commit()
    assert calls == 2 * fails_at - 1
    assert holds(model, states[0])


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_patches_write_their_places_alone(kernels: str, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    kind: Any = data.draw(st.sampled_from([torch.int16, torch.int32, torch.uint8]))
    order = data.draw(st.permutations(range(len(shape))))
    memory = torch.randint(0, 100, [shape[dim] for dim in order], dtype=kind)
    view = memory.permute([order.index(dim) for dim in range(len(shape))])
    after = torch.where(torch.rand(shape) < 0.5, view, view + 1)
    start = data.draw(st.integers(0, view.numel() - 1))
    movers = swaps_between(view.reshape(-1)[start:].contiguous(), after.reshape(-1)[start:])
    patch, whole = patch_of("a", view, start, movers), memory.clone()
    count = movers.at.numel()
    assert patch.exchange() == count
    assert torch.equal(view.reshape(-1)[start:], after.reshape(-1)[start:])
    if count:
        assert patch.exchange() == 0  # they are not what they were
        assert torch.equal(view.reshape(-1)[start:], after.reshape(-1)[start:])
    assert patch.back(count).exchange() == count
    assert torch.equal(memory, whole)


def test_as_many_as_are_as_they_were_are_written(kernels: str) -> None:
    memory = torch.zeros(5_000, dtype=torch.int16)
    at = torch.arange(0, 5_000, 2, dtype=torch.int32)
    patch = Patch("a", memory, Swaps(at, memory[at], torch.ones(2_500, dtype=torch.int16)))
    memory[4_000] = 7
    count = patch.exchange()
    assert count <= 2_000
    assert int((memory == 1).sum()) == count
    assert patch.back(count).exchange() == count
    assert memory.nonzero()[:, 0].tolist() == [4_000]
