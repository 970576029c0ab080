"""Packed vectors on their way between the parts of a parameter and even chunks in the order of its whole mask.

A parameter's shard holds as many masked coordinates as happen to lie in it. Chunks of equal length are what
checkpoints know how to gather, cut anew and load into another number of processes. Each process sends and receives
its share of a vector, and never holds more of it.
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
        dim: the dimension of it that the parameter is sharded over.
        total: entries of the whole vector.
        sent: how many entries of the part here are in each process's chunk.
        received: how many entries of the chunk here are in each process's part.
        places: int64; where in the chunk here those are.
    """

    mesh: DeviceMesh
    dim: int
    total: int
    sent: list[int]
    received: list[int]
    places: torch.Tensor

    @classmethod
    def of(cls, layout: Layout, order: Order) -> Exchange:
        """Agree with the other processes of the parameter."""
        mesh, dim = layout.mesh, layout.dim
        assert mesh is not None
        chunk = _chunk(order.total, mesh.size(dim))
        positions = order.positions()
        edges = [min(i * chunk, order.total) for i in range(mesh.size(dim) + 1)]
        bounds = positions.searchsorted(edges)
        sent = torch.from_numpy(bounds[1:] - bounds[:-1]).to(layout.device)
        received = torch.empty_like(sent)
        group = mesh.get_group(dim)
        dist.all_to_all_single(received, sent, group=group)
        here, there = sent.tolist(), received.tolist()
        places = _swapped(torch.from_numpy(positions).to(sent.device), here, there, group)
        places -= edges[mesh.get_local_rank(dim)]
        return cls(mesh, dim, order.total, here, there, places)

    def spread(self, part: torch.Tensor) -> torch.Tensor:
        """A part, ``[nnz]``, as a DTensor ``[total]`` in even chunks, on the part's device."""
        from torch.distributed.tensor import DTensor

        got = _swapped(part.to(self.places.device), self.sent, self.received, self.mesh.get_group(self.dim))
        chunk = torch.empty_like(got).index_copy_(0, self.places, got).to(part.device)
        shape = torch.Size([self.total])
        return DTensor.from_local(chunk, self.mesh, self._placements, run_check=False, shape=shape, stride=(1,))

    def collects(self, vector: torch.Tensor) -> bool:
        """Whether a DTensor lies as :meth:`spread` leaves it, which one from a file may not."""
        mesh, placements = vector.device_mesh, vector.placements  # type: ignore[attr-defined]
        return torch.equal(mesh.mesh, self.mesh.mesh) and tuple(placements) == self._placements

    def collect(self, vector: torch.Tensor) -> torch.Tensor:
        """The part ``[nnz]`` of what :meth:`spread` gave, here or before this process began."""
        there = local_of(vector).to(self.places.device).index_select(0, self.places)
        return _swapped(there, self.received, self.sent, self.mesh.get_group(self.dim))

    @property
    def _placements(self) -> tuple[Any, ...]:
        from torch.distributed.tensor import Replicate, Shard

        return tuple(Shard(0) if dim == self.dim else Replicate() for dim in range(self.mesh.ndim))


def was_cut_here(vector: torch.Tensor) -> bool:
    """Whether a DTensor is this process's own share, of processes that run now.

    One that ``torch.save`` wrote and another process reads is not: it brings the share of the process that wrote it.
    """
    mesh = vector.device_mesh  # type: ignore[attr-defined]
    place = mesh.get_coordinate()
    if place is None or not dist.is_initialized():
        return False
    return int(mesh.mesh[tuple(place)]) == dist.get_rank() and int(mesh.mesh.max()) < dist.get_world_size()


def _chunk(total: int, processes: int) -> int:
    return max(-(-total // processes), 1)


def _swapped(values: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    into = values.new_empty(sum(received))
    dist.all_to_all_single(into, values.contiguous(), received, sent, group=group)
    return into
