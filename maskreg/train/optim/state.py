"""State of masked optimizers: how it begins, and how it is saved and restored in any number of processes.

In memory, the state of one parameter covers its local part::

    step     fp32, 0-D
    mask     uint8 [16], fingerprint of the whole mask
    master   fp32 [nnz here], of weights narrower than fp32
    exp_avg, exp_avg_sq, fp32 or bf16 [nnz here], or what another optimizer keeps

Saved, every vector is in the order of the whole mask, ``[nnz]``; for sharded parameters as a DTensor in even chunks,
which checkpoints know how to gather, split again and load.

State that is quantized in blocks is in plain tensors, ``exp_avg.codes``, whose length is the same in every process. It
is saved as it is, process after process, since other blocks would have other values; only the same parts resume it::

    parts    int64 [5], of each process: its part, and how many of the mask's coordinates are there
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from maskreg.errors import DataError
from maskreg.live.shards import Layout, Order, local_of
from maskreg.train.optim.parameter import MaskedParameter
from maskreg.train.optim.step import Backend

# Packed vectors between the local parts of a sharded parameter and even chunks in the order of the whole mask.
#
# A shard has as many masked coordinates as happen to lie in it, so its packed vector has an odd length, and if the
# parameter is sharded along a later dimension its coordinates interleave with other shards'. Checkpoints expect
# the opposite: one vector, cut into chunks of equal length, which they can gather, split for another number of
# processes and load. Each vector is converted by one all-to-all, in which no process holds more than its share.
#
# Worked example: a ``[2, 4]`` tensor with 5 masked coordinates, sharded by columns over 2 processes, so that chunks
# have ``ceil(5 / 2) = 3`` entries::
#
#     mask 1 1 | 0 1        position in the whole mask   0 1 | . 2        process 0 has positions 0 1 3
#          1 0 | 1 0                                     3 . | 4 .        process 1 has positions 2 4
#
#                             process 0             process 1
#     part, local order       [a0 a1 a3]            [a2 a4]
#     sent to chunk 0, 1      2, 1                  1, 1
#     received from 0, 1      [a0 a1] [a2]          [a3] [a4]
#     offsets in the chunk    0 1      2            0    1
#     chunk                   [a0 a1 a2]            [a3 a4]
#
# Positions ascend within a part, so what goes to one process is a contiguous slice of it, and sizes follow from a
# binary search. Only positions need to travel beside the values, once; the way back is the same all-to-all reversed.


@dataclass(frozen=True, eq=False)
class Exchange:
    """Who sends what to whom, for the vectors of one parameter.

    Attributes:
        mesh: the processes.
        dim: dimension of the mesh over which the parameter is sharded.
        total: entries of the whole vector.
        sent: entries of the local part in each process's chunk.
        received: entries of the local chunk in each process's part.
        offsets: int64; where those are in the local chunk.
    """

    mesh: DeviceMesh
    dim: int
    total: int
    sent: list[int]
    received: list[int]
    offsets: torch.Tensor

    @classmethod
    def of(cls, layout: Layout, order: Order) -> Exchange:
        """Agree with the other processes of a parameter; a collective call."""
        mesh, dim = layout.mesh, layout.dim
        assert mesh is not None
        # As DTensor cuts a dimension: the last chunks can be shorter, or empty.
        size = max(-(-order.total // mesh.size(dim)), 1)
        positions = order.positions()
        edges = [min(i * size, order.total) for i in range(mesh.size(dim) + 1)]
        bounds = positions.searchsorted(edges)
        send_counts = torch.from_numpy(bounds[1:] - bounds[:-1]).to(layout.device)
        receive_counts = torch.empty_like(send_counts)
        group = mesh.get_group(dim)
        dist.all_to_all_single(receive_counts, send_counts, group=group)
        sent, received = send_counts.tolist(), receive_counts.tolist()
        offsets = _swapped(torch.from_numpy(positions).to(send_counts.device), sent, received, group)
        offsets -= edges[mesh.get_local_rank(dim)]
        return cls(mesh, dim, order.total, sent, received, offsets)

    def to_chunks(self, part: torch.Tensor) -> torch.Tensor:
        """A local part ``[nnz]`` as a DTensor ``[total]`` in even chunks, on the part's device."""
        entries = _swapped(part.to(self.offsets.device), self.sent, self.received, self.mesh.get_group(self.dim))
        chunk = torch.empty_like(entries).index_copy_(0, self.offsets, entries).to(part.device)
        return _chunked(chunk, self.total, self.mesh, self.dim)

    def accepts(self, vector: torch.Tensor) -> bool:
        """Whether a DTensor is laid out as :meth:`to_chunks` does, which one from a file might not be."""
        return _is_chunked(vector, self.mesh, self.dim)

    def to_part(self, vector: torch.Tensor) -> torch.Tensor:
        """The local part ``[nnz]`` of a DTensor that :meth:`accepts` accepts."""
        entries = local_of(vector).to(self.offsets.device).index_select(0, self.offsets)
        return _swapped(entries, self.received, self.sent, self.mesh.get_group(self.dim))


def _chunked(chunk: torch.Tensor, total: int, mesh: DeviceMesh, dim: int) -> torch.Tensor:
    """A DTensor ``[total]`` of every process's chunk."""
    from torch.distributed.tensor import DTensor

    placements = _placements(mesh, dim)
    return DTensor.from_local(chunk, mesh, placements, run_check=False, shape=torch.Size([total]), stride=(1,))


def _is_chunked(vector: torch.Tensor, mesh: DeviceMesh, dim: int) -> bool:
    other, placements = vector.device_mesh, vector.placements  # type: ignore[attr-defined]
    return torch.equal(other.mesh, mesh.mesh) and tuple(placements) == _placements(mesh, dim)


def _placements(mesh: DeviceMesh, dim: int) -> tuple[Any, ...]:
    from torch.distributed.tensor import Replicate, Shard

    return tuple(Shard(0) if each == dim else Replicate() for each in range(mesh.ndim))


def is_local_share(vector: torch.Tensor) -> bool:
    """Whether a DTensor's local tensor is this process's share, among processes that run now.

    One that ``torch.save`` wrote and another process loads is not: it carries the share of the process that wrote it.
    """
    mesh = vector.device_mesh  # type: ignore[attr-defined]
    coordinate = mesh.get_coordinate()
    if coordinate is None or not dist.is_initialized():
        return False
    return int(mesh.mesh[tuple(coordinate)]) == dist.get_rank() and int(mesh.mesh.max()) < dist.get_world_size()


def _swapped(values: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    result = values.new_empty(sum(received))
    dist.all_to_all_single(result, values.contiguous(), received, sent, group=group)
    return result


MASK = "mask"
"""The key of the fingerprint."""
PARTS = "parts"
"""The key of the part in which blocks are."""
OF_BLOCKS = "."
"""In keys of tensors that are quantized in blocks. All others with a dimension are packed vectors."""


def begin_state(item: MaskedParameter, state: dict[str, Any], vectors: Iterable[str], dtype: torch.dtype) -> None:
    """Add what is missing of the state of a parameter, as zeros; the vectors in a dtype."""
    if "step" not in state:
        state["step"] = torch.zeros((), dtype=torch.float32)
    for key in vectors:
        if key not in state:
            state[key] = torch.zeros(item.bits.nnz, dtype=dtype, device=item.weights.device)


def dithered(values: torch.Tensor, number: int) -> torch.Tensor:
    """fp32 values as bf16, rounded up or down so that over many steps their mean stays; ``number`` is the step's.

    Rounded to the nearest, a second moment would not move, because a step changes it by less than half the distance of
    two bf16 numbers. What is added here to the 16 bits that bf16 drops is a hash of the value and the step, so that any
    number of processes and a resumed run round alike.
    """
    bits, offset = values.view(torch.int32), (number * 0x85EBCA6B + 2**31) % 2**32 - 2**31
    mixed = bits.mul(0x9E3779B1 - 2**32).add_(offset)
    mixed = mixed.bitwise_xor_(mixed >> 15).mul_(0x2C1B3C6D).bitwise_right_shift_(16).bitwise_and_(0xFFFF)
    rounded = mixed.add_(bits).bitwise_and_(-0x10000).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).bfloat16()


def begin_master(item: MaskedParameter, state: dict[str, Any], weights: torch.Tensor, backend: Backend) -> None:
    """Add the master copy of a parameter's masked weights, if it has none yet."""
    if "master" not in state:
        # Packing adds to what is there, and 0.0 + -0.0 is 0.0, while -0.0 + x is x for every x.
        state["master"] = torch.full((item.bits.nnz,), -0.0, dtype=torch.float32, device=weights.device)
        backend.accumulate(state["master"], weights, item.bits)


@torch.no_grad()
def saved(item: MaskedParameter, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of one parameter as it is saved; a collective call of the processes that have a part of it."""
    exchange: Exchange | None = None
    whole: dict[str, Any] = {}
    for key, value in state.items():
        whole[key] = value
        if key == MASK:
            whole[key] = fingerprint_of(item)
        elif OF_BLOCKS in key or key == PARTS:
            whole[key] = _in_a_row(item, value)
        elif _is_vector(value) and item.layout.mesh is not None:
            exchange = exchange or Exchange.of(item.layout, item.order)
            whole[key] = exchange.to_chunks(value)
    return whole


@torch.no_grad()
def restored(item: MaskedParameter, state: Mapping[str, Any]) -> dict[str, Any]:
    """The local part of the saved state of one parameter, in memory of its own and the dtype in which it was saved."""
    if not state:
        return {}
    _check_mask(item, state.get(MASK))
    if any(OF_BLOCKS in key for key in state):
        _check_parts(item, state.get(PARTS, torch.empty(0, dtype=torch.int64)))
    exchange: Exchange | None = None
    local: dict[str, Any] = {}
    for key, value in state.items():
        local[key] = value
        if key == MASK:
            local[key] = fingerprint_of(item)
        elif OF_BLOCKS in key or key == PARTS:
            local[key] = _own_of(item, value).to(item.weights.device, copy=True)
        elif _is_vector(value):
            if tuple(value.shape) != (item.order.total,):
                raise DataError(
                    f"{key} of {item.name} has shape {list(value.shape)}, but its mask {item.order.total:,} coordinates"
                )
            _check_share(item, key, value)
            if item.layout.mesh is not None and hasattr(value, "placements"):
                exchange = exchange or Exchange.of(item.layout, item.order)
            local[key] = _local_vector(item, value, exchange)
        elif isinstance(value, torch.Tensor):
            local[key] = value.detach().to("cpu", copy=True)
    return local


def _check_share(item: MaskedParameter, key: str, value: torch.Tensor) -> None:
    if hasattr(value, "device_mesh") and not is_local_share(value):
        raise DataError(
            f"{key} of {item.name} is another process's share of it, as torch.save writes of sharded state",
            hint="save and load with torch.distributed.checkpoint; or let each process load the file that it"
            " saved, in as many processes",
        )


def _check_parts(item: MaskedParameter, parts: torch.Tensor) -> None:
    _check_share(item, PARTS, parts)
    here, there = _whole_of(_in_a_row(item, part_of(item))), _whole_of(parts)
    if not torch.equal(here, there.to(here.device)):
        raise DataError(
            f"the saved state of {item.name} is quantized in blocks within the parts of {len(there) // 5} processes;"
            f" now {len(here) // 5} have other parts",
            hint="resume in as many processes, sharded in the same way; or begin with new state, from the weights",
        )


def _in_a_row(item: MaskedParameter, value: torch.Tensor) -> torch.Tensor:
    """Values of as many entries in each process, as one DTensor; of a parameter that is not sharded, as they are."""
    mesh, dim = item.layout.mesh, item.layout.dim
    return value if mesh is None else _chunked(value, len(value) * mesh.size(dim), mesh, dim)


def _own_of(item: MaskedParameter, value: torch.Tensor) -> torch.Tensor:
    """This process's share of what :func:`_in_a_row` returned."""
    mesh, dim = item.layout.mesh, item.layout.dim
    if mesh is not None and hasattr(value, "placements") and _is_chunked(value, mesh, dim):
        return local_of(value)
    whole = _whole_of(value)
    return whole if mesh is None else whole.chunk(mesh.size(dim))[mesh.get_local_rank(dim)]


def _whole_of(value: Any) -> torch.Tensor:
    whole: torch.Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole


def _check_mask(item: MaskedParameter, fingerprint: torch.Tensor | None) -> None:
    if fingerprint is None:
        raise DataError(
            f"the saved state of {item.name} is not of a masked optimizer", hint="start without it, from the weights"
        )
    if bytes(fingerprint.to("cpu", torch.uint8).tolist()) != item.fingerprint:
        raise DataError(
            f"the saved state of {item.name} is of another mask", hint="resume with the mask that it was saved with"
        )


def _local_vector(item: MaskedParameter, value: torch.Tensor, exchange: Exchange | None) -> torch.Tensor:
    device = item.weights.device
    if exchange is not None and exchange.accepts(value):
        return exchange.to_part(value).to(device)
    full = _whole_of(value)
    if item.layout.mesh is not None:
        full = full.index_select(0, torch.from_numpy(item.order.positions()).to(full.device))
    return full.to(device, copy=True)


def _is_vector(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def part_of(item: MaskedParameter) -> torch.Tensor:
    """Which part of a parameter is in this process, and how many of its coordinates are masked, int64 ``[5]``."""
    part = item.layout.part
    return torch.tensor([part.first, part.stride, part.length, part.count, item.bits.nnz], device=item.weights.device)


def fingerprint_of(item: MaskedParameter) -> torch.Tensor:
    """The fingerprint of a parameter's whole mask, uint8 ``[16]``."""
    return torch.tensor(list(item.fingerprint), dtype=torch.uint8, device=item.weights.device)
