"""Packed vectors between the local parts of a sharded parameter and even chunks in the order of the whole mask.

A shard has as many masked coordinates as happen to lie in it, so its packed vector has an odd length, and if the
parameter is sharded along a later dimension its coordinates interleave with those of other shards. Checkpoints expect
the opposite: one vector, cut into chunks of equal length, which they can gather, split for another number of processes
and load. Each vector is converted by one all-to-all, in which no process holds more than its share.

Worked example: a ``[2, 4]`` tensor with 5 masked coordinates, sharded by columns over 2 processes, so that chunks have
``ceil(5 / 2) = 3`` entries::

    mask 1 1 | 0 1        position in the whole mask   0 1 | . 2        process 0 has positions 0 1 3
         1 0 | 1 0                                     3 . | 4 .        process 1 has positions 2 4

                            process 0             process 1
    part, local order       [a0 a1 a3]            [a2 a4]
    sent to chunk 0, 1      2, 1                  1, 1
    received from 0, 1      [a0 a1] [a2]          [a3] [a4]
    offsets in the chunk    0 1      2            0    1
    chunk                   [a0 a1 a2]            [a3 a4]

Positions ascend within a part, so what goes to one process is a contiguous slice of it, and sizes follow from a binary
search. Only positions need to travel beside the values, once; the way back is the same all-to-all reversed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from maskreg.live.shards import Layout, Order, local_of


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
        from torch.distributed.tensor import DTensor

        entries = _swapped(part.to(self.offsets.device), self.sent, self.received, self.mesh.get_group(self.dim))
        chunk = torch.empty_like(entries).index_copy_(0, self.offsets, entries).to(part.device)
        shape = torch.Size([self.total])
        return DTensor.from_local(chunk, self.mesh, self._placements, run_check=False, shape=shape, stride=(1,))

    def accepts(self, vector: torch.Tensor) -> bool:
        """Whether a DTensor is laid out as :meth:`to_chunks` does, which one from a file may not be."""
        mesh, placements = vector.device_mesh, vector.placements  # type: ignore[attr-defined]
        return torch.equal(mesh.mesh, self.mesh.mesh) and tuple(placements) == self._placements

    def to_part(self, vector: torch.Tensor) -> torch.Tensor:
        """The local part ``[nnz]`` of a DTensor that :meth:`accepts` accepts."""
        entries = local_of(vector).to(self.offsets.device).index_select(0, self.offsets)
        return _swapped(entries, self.received, self.sent, self.mesh.get_group(self.dim))

    @property
    def _placements(self) -> tuple[Any, ...]:
        from torch.distributed.tensor import Replicate, Shard

        return tuple(Shard(0) if dim == self.dim else Replicate() for dim in range(self.mesh.ndim))


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
