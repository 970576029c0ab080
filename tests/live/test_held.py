"""Coordinates that a process holds, against indexing the whole tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from maskreg.errors import UsageError
from maskreg.live.held import _Cut, held
from maskreg.live.runs import Runs


def sets(draw: st.DrawFn, sizes: list[int]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Ascending indexes of each dimension."""
    return [np.flatnonzero(draw(st.lists(st.booleans(), min_size=n, max_size=n))) for n in sizes]


def coordinates(runs: Runs) -> np.ndarray[Any, Any]:
    return (runs.starts[:, None] + np.arange(runs.length)).reshape(-1)


@given(st.data())
def test_runs_are_the_coordinates_that_indexing_gives(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4))
    indexes = data.draw(st.composite(sets)(shape))
    whole = np.arange(math.prod(shape)).reshape(shape)
    expected = whole[np.ix_(*indexes)].reshape(-1) if shape else whole.reshape(-1)
    runs = Runs.of(shape, indexes)
    assert np.array_equal(coordinates(runs), expected)
    assert runs.numel == expected.size
    start = data.draw(st.integers(0, whole.size))
    stop = data.draw(st.integers(start, whole.size))
    taken = runs.between(start, stop)
    assert np.array_equal(expected[taken], expected[(expected >= start) & (expected < stop)])
    if taken.stop > taken.start:
        block = np.arange(whole.size)[start:stop]
        assert np.array_equal(block[runs.positions(taken, start)], expected[taken])
        assert np.array_equal(runs.of_block(block, taken, start), expected[taken])


@given(st.data())
def test_a_part_of_a_parameter_is_found_in_what_a_process_has_of_it(data: st.DataObject) -> None:
    """Narrowed, selected and transposed as experts and fused projections are."""
    shape = data.draw(st.lists(st.integers(1, 6), max_size=4))
    parameter = torch.arange(math.prod(shape)).reshape(shape)
    view = parameter
    for _ in range(data.draw(st.integers(0, 4))):
        if not view.dim():
            break
        dim = data.draw(st.integers(0, view.dim() - 1))
        match data.draw(st.sampled_from(["narrow", "select", "transpose"])):
            case "narrow":
                first = data.draw(st.integers(0, view.shape[dim] - 1))
                view = view.narrow(dim, first, data.draw(st.integers(1, view.shape[dim] - first)))
            case "select":
                view = view.select(dim, 0)
            case _:
                view = view.transpose(dim, 0)
    indexes = data.draw(st.composite(sets)(shape))
    local = parameter[np.ix_(*indexes)] if all(map(len, indexes)) else parameter.new_empty([len(i) for i in indexes])
    blank = torch.empty(shape, device="meta").as_strided(view.shape, view.stride(), view.storage_offset())
    cut = _Cut(tuple(shape), blank)
    flat = view.reshape(-1)
    mine = np.isin(flat.numpy(), local.numpy()) if local.numel() else np.zeros(flat.numel(), bool)
    assert np.array_equal(coordinates(cut.runs(indexes)), np.flatnonzero(mine))
    assert torch.equal(cut.part(local.contiguous(), indexes).reshape(-1), flat[torch.from_numpy(mine)])


PLACEMENTS = [
    ((4,), (Shard(0),)),
    ((4,), (Shard(1),)),
    ((4,), (Replicate(),)),
    ((2, 2), (Replicate(), Shard(0))),
    ((2, 2), (Shard(0), Shard(1))),
    ((2, 2), (Shard(0), Shard(0))),
    ((2, 2), (_StridedShard(0, split_factor=2), Shard(0))),
    ((2, 2), (Shard(2), Replicate())),
]
"""FSDP2, HSDP, tensor parallelism, and both."""


@pytest.fixture(params=range(4))
def rank(request: pytest.FixtureRequest) -> Iterator[int]:
    """One of four processes, of which the others do not exist."""
    dist.init_process_group("fake", rank=request.param, world_size=4, store=FakeStore())
    yield request.param
    dist.destroy_process_group()


@pytest.mark.parametrize(("mesh", "placements"), PLACEMENTS, ids=str)
def test_what_a_process_holds_is_what_torch_gives_it(mesh: tuple[int, ...], placements: Any, rank: int) -> None:
    """Of gate and up projections stacked in one parameter, the second expert's."""
    parameter = torch.arange(3 * 10 * 8).reshape(3, 10, 8)
    sharded = distribute_tensor(parameter, init_device_mesh("cpu", mesh), placements, src_data_rank=None)
    view = torch.split(torch.empty(parameter.shape, device="meta")[1], [4, 6])[1]
    own = held("up", sharded, view)
    flat = torch.split(parameter[1], [4, 6])[1].reshape(-1)
    taken = coordinates(own.of[rank])
    assert torch.equal(own.local.reshape(-1), flat[torch.from_numpy(taken)])
    assert np.isin(own.local.reshape(-1).numpy(), sharded.to_local().numpy()).all()
    together = np.concatenate([coordinates(runs) for runs in own.of.values()])
    assert np.array_equal(np.sort(together), np.arange(flat.numel()))
    copies = math.prod(n for n, placement in zip(mesh, placements, strict=True) if placement.is_replicate())
    assert len(own.of) == 4 // copies


def test_partial_sums_are_refused(rank: int) -> None:
    partial = DTensor.from_local(torch.zeros(4), init_device_mesh("cpu", (4,)), [Partial()])
    with pytest.raises(UsageError, match=r"w .*Partial\(sum\)"):
        held("w", partial, torch.empty(4, device="meta"))
