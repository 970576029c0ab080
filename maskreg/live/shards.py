"""The part of a parameter that is in this process: its coordinates, its mask, and their positions in the whole mask.

``fully_shard`` cuts a parameter along one dimension. In C order, the local part is then a number of equally long spans
at equal distances: one span for dimension 0, one per index of the earlier dimensions for a later one. A ``[4, 6]``
tensor over two processes::

    Shard(0)      Shard(1)
    0 0 0 0 0 0   0 0 0 1 1 1       Shard(0), process 1: 1 span, first 12, length 12
    0 0 0 0 0 0   0 0 0 1 1 1       Shard(1), process 1: 4 spans, first 3, stride 6, length 3
    1 1 1 1 1 1   0 0 0 1 1 1
    1 1 1 1 1 1   0 0 0 1 1 1

Spans may begin anywhere in a byte of packed bits, so the mask is cut by shifting bits, without unpacking it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from maskreg.errors import UsageError
from maskreg.mask.packed import pack, packed_bytes, unpack
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
    def along(cls, shape: tuple[int, ...], dim: int, start: int, stop: int) -> Part:
        """Indices ``start`` to ``stop`` of one dimension."""
        inner = math.prod(shape[dim + 1 :])
        stride = shape[dim] * inner
        return cls(math.prod(shape), start * inner, stride, (stop - start) * inner, math.prod(shape[:dim]))

    @property
    def numel(self) -> int:
        """Coordinates of the part."""
        return self.length * self.count


@dataclass(frozen=True, eq=False)
class Layout:
    """How a parameter is distributed over processes.

    ``mesh``: None if all of it is local. ``dim``: of the mesh, over which it is sharded; over others it is replicated.
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
        """Where those processes exchange tensors; an offloaded parameter may be elsewhere."""
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
    local: torch.Tensor = tensor if to_local is None else to_local()
    return local


def layout_of(name: str, tensor: torch.Tensor) -> Layout:
    """The layout of a parameter."""
    mesh: DeviceMesh | None = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return Layout(Part.whole(tensor.numel()))
    from torch.distributed.tensor import Replicate, Shard

    placements: tuple[Any, ...] = tensor.placements  # type: ignore[attr-defined]
    split = [
        (dim, placement)
        for dim, placement in enumerate(placements)
        if mesh.size(dim) > 1 and not isinstance(placement, Replicate)
    ]
    if not split:
        return Layout(Part.whole(tensor.numel()))
    unsupported = [placement for _, placement in split if type(placement) is not Shard]
    if unsupported or len(split) > 1:
        raise UsageError(
            f"{name} is distributed as {', '.join(map(repr, placements))} over {mesh.ndim} mesh dimensions; masks can"
            " be cut for Shard over one of them and Replicate over the others",
            hint="shard with fully_shard(model) alone, without tensor parallelism",
        )
    dim, placement = split[0]
    along = placement.dim % tensor.dim()
    size, parts = tensor.shape[along], mesh.size(dim)
    chunk = -(-size // parts)
    start = min(mesh.get_local_rank(dim) * chunk, size)
    part = Part.along(tuple(tensor.shape), along, start, min(start + chunk, size))
    if local_of(tensor.detach()).numel() != part.numel:
        raise UsageError(f"{name} is cut into other sizes than torch.chunk gives", hint="shard with fully_shard(model)")
    return Layout(part, mesh, dim)


def cut(packed: npt.NDArray[np.uint8], part: Part) -> tuple[npt.NDArray[np.uint8], Order]:
    """The mask of a part of a tensor. The kernel takes no memory beside the result: native/src/parts.c."""
    if packed.size != packed_bytes(part.whole_numel):
        raise ValueError(f"{packed.size} bytes cannot be the mask of {part.whole_numel} coordinates")
    if compiled := library():
        bits = np.empty(packed_bytes(part.numel), np.uint8)
        before, inside = np.empty(part.count, np.int64), np.empty(part.count, np.int64)
        total: int = compiled.lib.maskreg_cut(
            compiled.read(np.ascontiguousarray(packed)), packed.size // 8,
            part.first, part.stride, part.length, part.count,
            compiled.write(bits), compiled.write(before), compiled.write(inside),
        )  # fmt: skip
        return bits, Order(total, before, inside)
    moved = unpack(packed, part.whole_numel)
    masked, starts = np.flatnonzero(moved), part.first + part.stride * np.arange(part.count)
    before, upto = (np.searchsorted(masked, ends) for ends in (starts, starts + part.length))
    spans = moved.reshape(part.count, part.stride)[:, part.first : part.first + part.length]
    return pack(spans), Order(masked.size, before, upto - before)
