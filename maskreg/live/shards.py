"""The part of a parameter that is in this process: which coordinates, whose mask, and where they stand in the whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from maskreg.errors import UsageError
from maskreg.jit import kernel
from maskreg.mask.packed import packed_bytes

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

_ONES = np.bitwise_count(np.arange(256, dtype=np.uint8))


@dataclass(frozen=True)
class Part:
    """Coordinates of a tensor in C order: ``count`` runs of ``length``, ``stride`` apart, the first at ``first``.

    A shard along the first dimension is one run, wherever in a byte of packed bits it begins; one along a later
    dimension is a run for each index of the dimensions before.

    Attributes:
        whole_numel: coordinates of the whole tensor.
        first: where the first run begins.
        stride: from the beginning of a run to that of the next.
        length: coordinates of a run; 0 where a process has none.
        count: runs.
    """

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
    """How a parameter lies over processes.

    Attributes:
        part: what of it is here.
        mesh: the processes that have it; None where all of it is here.
        dim: dimension of the mesh over which it is sharded; over the others it is replicated.
    """

    part: Part
    mesh: DeviceMesh | None = None
    dim: int = 0

    @property
    def group(self) -> ProcessGroup | None:
        """The processes whose parts make up the whole, this one among them."""
        return None if self.mesh is None else self.mesh.get_group(self.dim)

    @property
    def device(self) -> torch.device:
        """Where those processes exchange tensors, which may not be where the parameter is."""
        if self.mesh is None or self.mesh.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(self.mesh.device_type, torch.get_device_module(self.mesh.device_type).current_device())


@dataclass(frozen=True, eq=False)
class Order:
    """Where the masked coordinates of a part stand among those of the whole tensor.

    Attributes:
        total: masked coordinates of the whole tensor.
        before: int64 ``[count]``; how many of those come before each run.
        inside: int64 ``[count]``; how many are in each run.
    """

    total: int
    before: npt.NDArray[np.int64]
    inside: npt.NDArray[np.int64]

    def positions(self) -> npt.NDArray[np.int64]:
        """Of each masked coordinate here, in ascending order; int64 ``[nnz]``."""
        ends = self.inside.cumsum()
        places: npt.NDArray[np.int64] = np.repeat(self.before - (ends - self.inside), self.inside)
        places += np.arange(places.size)
        return places


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor in this process, sharing memory with it; itself where it is not sharded."""
    to_local = getattr(tensor, "to_local", None)
    local: torch.Tensor = tensor if to_local is None else to_local()
    return local


def layout_of(name: str, tensor: torch.Tensor) -> Layout:
    """Where a parameter is.

    Args:
        name: for messages.
        tensor: plain, or a DTensor sharded over at most one dimension of its mesh.

    Raises:
        UsageError: a layout whose parts are not found again in the mask: sums that are not yet taken, shards of
            shards, and interleaved ones.
    """
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
    odd = [placement for _, placement in split if type(placement) is not Shard]
    if odd or len(split) > 1:
        raise UsageError(
            f"{name} lies as {', '.join(map(repr, placements))} over {mesh.ndim} dimensions of processes, and masks are"
            " cut for Shard over one of them and Replicate over the others",
            hint="shard with fully_shard(model) alone, without tensor parallelism",
        )
    dim, placement = split[0]
    along = placement.dim % tensor.dim()
    size, parts = tensor.shape[along], mesh.size(dim)
    chunk = -(-size // parts)
    start = min(mesh.get_local_rank(dim) * chunk, size)
    part = Part.along(tuple(tensor.shape), along, start, min(start + chunk, size))
    if local_of(tensor.detach()).numel() != part.numel:
        raise UsageError(
            f"{name} is cut into parts of other sizes than torch.chunk makes", hint="shard with fully_shard(model)"
        )
    return Layout(part, mesh, dim)


def cut(packed: npt.NDArray[np.uint8], part: Part) -> tuple[npt.NDArray[np.uint8], Order]:
    """The mask of a part from that of the whole tensor.

    Nothing is unpacked: beside what is returned, no memory is needed.

    Args:
        packed: uint8, as :func:`maskreg.mask.packed.pack` gives it.
        part: of the same tensor.

    Returns:
        The bits of the part, packed likewise, and where its masked coordinates stand.
    """
    if packed.size != packed_bytes(part.whole_numel):
        raise ValueError(f"{packed.size} bytes cannot be the mask of {part.whole_numel} coordinates")
    packed = np.ascontiguousarray(packed)
    bits = np.zeros(packed_bytes(part.numel), np.uint8)
    _copy(packed, part.first, part.stride, part.length, part.count, bits)
    # Where each run begins, and after the last: where it ends.
    before = np.empty(part.count, np.int64)
    total = _count(packed, _ONES, part.first, part.stride, before)
    here = np.empty(part.count, np.int64)
    nnz = _count(bits, _ONES, 0, part.length, here)
    return bits, Order(total, before, np.diff(here, append=nnz))


@kernel
def _copy(
    bits: npt.NDArray[np.uint8], first: int, stride: int, length: int, count: int, into: npt.NDArray[np.uint8]
) -> None:
    """Bits of every run, one run behind the other, into zeros."""
    to = 0
    for run in range(count):
        at = first + run * stride
        end = at + length
        while at < end:
            byte, shift = at >> 3, at & 7
            n = min(end - at, 8 - (to & 7))
            value = bits[byte] >> shift
            if shift + n > 8:
                value |= bits[byte + 1] << (8 - shift)
            into[to >> 3] |= (value & ((1 << n) - 1)) << (to & 7)
            at += n
            to += n


@kernel
def _count(
    bits: npt.NDArray[np.uint8], ones: npt.NDArray[np.uint8], first: int, stride: int, before: npt.NDArray[np.int64]
) -> int:
    """How many bits are set, and how many of them before each of the places ``first + i * stride``."""
    seen = 0
    byte = 0
    for run in range(before.size):
        at = first + run * stride
        while byte < at >> 3:
            seen += ones[bits[byte]]
            byte += 1
        before[run] = seen
        if at & 7:
            before[run] += ones[bits[byte] & ((1 << (at & 7)) - 1)]
    while byte < bits.size:
        seen += ones[bits[byte]]
        byte += 1
    return seen
