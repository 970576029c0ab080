"""Which coordinates of a checkpoint's tensor a process holds, and where in its memory they are.

A parameter is cut along any of its dimensions, over any number of mesh dimensions. A process then holds the product of
a set of indexes per dimension, and a tensor of the checkpoint, which is the parameter or a part of it, the product of
those that fall into the part: runs of one length (:mod:`maskreg.live.runs`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh

from maskreg.errors import UsageError
from maskreg.live.runs import Indexes, Runs
from maskreg.live.shards import indexes_of, local_of


@dataclass(frozen=True, eq=False)
class Held:
    """What this process holds of a tensor.

    ``local`` shares the model's memory; flattened, it is in the order of the runs. ``of`` has the runs of each process
    that has to do with this tensor, by rank, ascending; together they are the tensor.
    """

    local: torch.Tensor
    of: dict[int, Runs]


def held(name: str, parameter: torch.Tensor, view: torch.Tensor) -> Held:
    """What this process holds of a tensor, a view of a tensor without data that has the sharded parameter's shape."""
    mesh: DeviceMesh = parameter.device_mesh  # type: ignore[attr-defined]
    placements: tuple[Any, ...] = parameter.placements  # type: ignore[attr-defined]
    if any(placement.is_partial() for placement in placements):
        raise UsageError(
            f"{name} is distributed as {', '.join(map(repr, placements))}: its processes hold partial sums",
            hint="redistribute it to Shard or Replicate first",
        )
    local = local_of(parameter.detach())
    position = mesh.get_coordinate()
    if position is None:
        return Held(local.new_empty(0), {})
    positions = {
        int(mesh.mesh[coordinate]): coordinate
        for coordinate in product(
            *(
                [own] if placement.is_replicate() else range(mesh.size(dim))
                for dim, (own, placement) in enumerate(zip(position, placements, strict=True))
            )
        )
    }
    cut = _Cut(tuple(parameter.shape), view)
    own = indexes_of(parameter.shape, mesh, placements, positions[torch.distributed.get_rank()])
    if [len(each) for each in own] != list(local.shape):
        raise UsageError(
            f"{name} is cut into other sizes than its placements {', '.join(map(repr, placements))} say",
            hint="shard with fully_shard(model) or parallelize_module",
        )
    of = {
        holder: cut.runs(indexes_of(parameter.shape, mesh, placements, coordinate))
        for holder, coordinate in sorted(positions.items())
    }
    return Held(cut.part(local, own), of)


def whole(tensor: torch.Tensor, rank: int = 0) -> Held:
    """A tensor that this process, of this rank, holds whole, and works on alone."""
    return Held(tensor, {rank: Runs.whole(tensor.numel())})


class _Cut:
    """How dimensions of a tensor of the checkpoint are dimensions of the parameter, some of which it has one index of.

    ``view`` says it by strides, which differ among dimensions of more than one index. Up projections of two experts in
    ``[2, 8, 6]``, gate before up: expert 1's is a view ``[4, 6]`` with strides 6, 1 and offset 72 = (1, 4, 0). So its
    dimensions are 1 from index 4 on and 2 from index 0 on, and of dimension 0 it has index 1.
    """

    def __init__(self, shape: tuple[int, ...], view: torch.Tensor) -> None:
        self._shape = tuple(view.shape)
        strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        rest = int(view.storage_offset())
        self._offsets = []
        for stride in strides:
            self._offsets.append(rest // stride if stride else 0)
            rest -= self._offsets[-1] * stride
        of_stride = {stride: dim for dim, stride in enumerate(strides) if shape[dim] > 1}
        # A dimension of one index can be any: it is none here.
        self._dims = [of_stride[stride] if n > 1 else None for n, stride in zip(view.shape, view.stride(), strict=True)]

    def runs(self, indexes: list[Indexes]) -> Runs:
        """Coordinates of the tensor among those with these indexes of the parameter."""
        own, ranges = [], self._ranges(indexes)
        if 0 in self._shape or not all(hi > lo for lo, hi in ranges):
            return Runs(np.empty(0, np.int64), 0)
        for dim in self._dims:
            own.append(np.zeros(1, np.int64) if dim is None else indexes[dim][slice(*ranges[dim])] - self._offsets[dim])
        return Runs.of(self._shape, own)

    def part(self, local: torch.Tensor, indexes: list[Indexes]) -> torch.Tensor:
        """A view of the tensor's coordinates in the local part of the parameter, in the tensor's order."""
        ranges = self._ranges(indexes)
        if 0 in self._shape or not all(hi > lo for lo, hi in ranges):
            return local.new_empty(0)
        for dim, (lo, hi) in enumerate(ranges):
            local = local.narrow(dim, lo, hi - lo)
        kept = [dim for dim in self._dims if dim is not None]
        ordered = local.permute([*kept, *(dim for dim in range(local.dim()) if dim not in kept)])
        # What is left behind them has one index each.
        flat = ordered.as_strided(ordered.shape[: len(kept)], ordered.stride()[: len(kept)], ordered.storage_offset())
        for dim, of in enumerate(self._dims):
            if of is None:
                flat = flat.unsqueeze(dim)
        return flat

    def _ranges(self, indexes: list[Indexes]) -> list[tuple[int, int]]:
        """Of each dimension of the parameter, which of these indexes are in the tensor."""
        sizes = {dim: n for dim, n in zip(self._dims, self._shape, strict=True) if dim is not None}
        result = []
        for dim, (own, offset) in enumerate(zip(indexes, self._offsets, strict=True)):
            lo, hi = np.searchsorted(own, [offset, offset + sizes.get(dim, 1)])
            result.append((int(lo), int(hi)))
        return result
