"""Coordinates that a process holds, against indexing the whole tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskreg.live.held import Runs, _Cut


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
        assert np.array_equal(np.arange(whole.size)[start:stop][runs.positions(taken, start)], expected[taken])


@given(st.data())
def test_a_part_of_a_parameter_is_found_in_what_a_process_has_of_it(data: st.DataObject) -> None:
    """Narrowed, selected and transposed as experts and fused projections are."""
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
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
