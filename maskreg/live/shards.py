"""The part of a parameter that is in this process: its coordinates, its mask, and their positions in the whole mask.

``fully_shard`` cuts a parameter along one dimension. In C order, the local part is then a number of equally long spans
at equal distances: one span for dimension 0, one per index of the earlier dimensions for a later one. A ``[4, 6]``
tensor over two processes::

    Shard(0)      Shard(1)
    0 0 0 0 0 0   0 0 0 1 1 1       Shard(0), process 1: 1 span, first 12, length 12
    0 0 0 0 0 0   0 0 0 1 1 1       Shard(1), process 1: 4 spans, first 3, stride 6, length 3
    1 1 1 1 1 1   0 0 0 1 1 1
    1 1 1 1 1 1   0 0 0 1 1 1

Spans can begin anywhere in a byte of packed bits, so the mask is cut by shifting bits, without unpacking it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from maskreg.errors import UsageError
from maskreg.live.runs import Runs
from maskreg.mask.packed import packed_bytes
from maskreg.native import library


@dataclass(frozen=True)
class Part:
    """Coordinates of a tensor in C order: ``count`` spans of ``length``, ``stride`` apart, the first at ``first``."""

    whole_numel: int
    first: int
    stride: int
    length: int
    count: int

    @classmethod
    def whole(cls, numel: int) -> Part:
        """All of a tensor."""
        return cls(numel, 0, numel, numel, 1)

    @classmethod
    def of(cls, shape: tuple[int, ...], indexes: Sequence[npt.NDArray[np.int64]]) -> Part | None:
        """The product of these indexes along each dimension; None where it is not such spans.

        They are where one dimension was cut, or two of which no other comes before, into ranges. ``[4, 6]`` in
        quarters, the last: 2 spans, first 15, stride 6, length 3.
        """
        runs = Runs.of(shape, indexes)
        strides = np.diff(runs.starts)
        if (strides != strides[:1]).any() or any(len(own) and own[-1] - own[0] + 1 != len(own) for own in indexes):
            return None
        first = int(runs.starts[0]) if runs.starts.size else 0
        stride = int(strides[0]) if strides.size else runs.length
        return cls(math.prod(shape), first, stride, runs.length, runs.starts.size)

    @property
    def numel(self) -> int:
        """Coordinates of the part."""
        return self.length * self.count


@dataclass(frozen=True, eq=False)
class Layout:
    """How a parameter is distributed over processes.

    ``mesh``: None if all of it is local. ``dim``: of the mesh, over which it is sharded; over others it is replicated.
    Of a parameter that is sharded over several dimensions of its mesh, the mesh has those as one.
    """

    part: Part
    mesh: DeviceMesh | None = None
    dim: int = 0

    @property
    def group(self) -> ProcessGroup | None:
        """The processes, with this one, whose parts make up the whole."""
        return None if self.mesh is None else self.mesh.get_group(self.dim)

    @property
    def device(self) -> torch.device:
        """Where those processes exchange tensors; an offloaded parameter can be elsewhere."""
        if self.mesh is None or self.mesh.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(self.mesh.device_type, torch.get_device_module(self.mesh.device_type).current_device())


@dataclass(frozen=True, eq=False)
class Order:
    """Positions of a part's masked coordinates among the ``total`` of the whole tensor.

    ``before``: masked coordinates of the whole tensor before each span; ``inside``: in each; int64 ``[count]``.
    """

    total: int
    before: npt.NDArray[np.int64]
    inside: npt.NDArray[np.int64]

    def positions(self) -> npt.NDArray[np.int64]:
        """The position of each masked coordinate of the part, ascending; int64 ``[nnz]``.

        Local entry ``k`` in span ``s`` is at ``before[s]`` plus its number within the span, ``k - entries before s``.
        With before 2, 9 and inside 3, 2: positions 2 3 4 9 10.
        """
        ends = self.inside.cumsum()
        positions: npt.NDArray[np.int64] = np.repeat(self.before - (ends - self.inside), self.inside)
        positions += np.arange(positions.size)
        return positions


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The local part of a tensor, sharing memory with it; the tensor itself if it is not sharded."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def layout_of(name: str, tensor: torch.Tensor) -> Layout:
    """The layout of a parameter."""
    mesh: DeviceMesh | None = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return Layout(Part.whole(tensor.numel()))
    placements: tuple[Any, ...] = tensor.placements  # type: ignore[attr-defined]
    position = mesh.get_coordinate()
    split = [dim for dim, each in enumerate(placements) if mesh.size(dim) > 1 and not each.is_replicate()]
    part = None
    if position is not None and not any(each.is_partial() for each in placements):
        part = Part.of(tuple(tensor.shape), indexes_of(tensor.shape, mesh, placements, position))
    if part is None:
        raise UsageError(
            f"{name} is distributed as {', '.join(map(repr, placements))} over {mesh.ndim} mesh dimensions; masks can"
            " be cut for Shard over one or two of them, into ranges",
            hint="shard with fully_shard(model), parallelize_module, or both",
        )
    if local_of(tensor.detach()).numel() != part.numel:
        raise UsageError(f"{name} is cut into other sizes than torch.chunk gives", hint="shard with fully_shard(model)")
    if not split:
        return Layout(part)
    return Layout(part, mesh, split[0]) if len(split) == 1 else Layout(part, _joined(mesh, split))


def _joined(mesh: DeviceMesh, dims: Sequence[int]) -> DeviceMesh:
    """Dimensions of a mesh as one, which the mesh keeps; the first time, a collective call of all its processes."""
    names = mesh.mesh_dim_names
    if names is None:
        raise UsageError(
            "a parameter is sharded over several dimensions of a mesh, and these have no names",
            hint='init_device_mesh(..., mesh_dim_names=("dp", "tp"))',
        )
    return mesh[tuple(names[dim] for dim in dims)]._flatten()


def indexes_of(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Any], position: Sequence[int]
) -> list[npt.NDArray[np.int64]]:
    """Indexes along each dimension of a parameter that the process at a position of the mesh has."""
    indexes = [np.arange(size) for size in shape]
    for mesh_dim, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        dim, parts = placement.dim % len(shape), mesh.size(mesh_dim)
        if type(placement).__name__ == "_StridedShard":
            pieces, _ = placement._split_tensor(
                torch.from_numpy(indexes[dim]), parts, with_padding=False, contiguous=True
            )
            indexes[dim] = pieces[position[mesh_dim]].numpy()
        else:
            size = -(-len(indexes[dim]) // parts)
            indexes[dim] = indexes[dim][position[mesh_dim] * size : (position[mesh_dim] + 1) * size]
    return indexes


def cut(packed: npt.NDArray[np.uint8], part: Part) -> tuple[npt.NDArray[np.uint8], Order]:
    """The mask of a part of a tensor. The kernel takes no memory beside the result: native/src/parts.c."""
    if packed.size != packed_bytes(part.whole_numel):
        raise ValueError(f"{packed.size} bytes cannot be the mask of {part.whole_numel} coordinates")
    compiled = library()
    bits = np.empty(packed_bytes(part.numel), np.uint8)
    before, inside = np.empty(part.count, np.int64), np.empty(part.count, np.int64)
    total: int = compiled.lib.maskreg_cut(
        compiled.read(np.ascontiguousarray(packed)), packed.size // 8,
        part.first, part.stride, part.length, part.count,
        compiled.write(bits), compiled.write(before), compiled.write(inside),
    )  # fmt: skip
    return bits, Order(total, before, inside)
