"""Which process codes which block, and which coordinates of it each process holds.

One of the processes that hold coordinates of a block owns it. Processes that hold the same coordinates (HSDP,
replicated tensors) share tensors out among them: each tensor is the work of one group of holders::

    2 x 2 processes, replicated over the first dimension and sharded over the second
    tensor 0    0 and 1 hold it, and so do 2 and 3      0 and 1 publish it
    tensor 1    likewise                                2 and 3 publish it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maskreg.live.runs import Runs, pieces
from maskreg.tensors.info import TensorInfo, blocks_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.live.held import Held
    from maskreg.live.processes import Processes

    Positions = npt.NDArray[np.uint32]


class Block(NamedTuple):
    """Elements ``[start, stop)`` of a tensor, and the process that codes them.

    Attributes:
        taken: by process, which of its coordinates of the tensor lie in the block; empty where this process is not
            among those that publish the tensor.
        runs: by process, its coordinates of the tensor.
    """

    name: str
    start: int
    stop: int
    owner: int
    taken: Mapping[int, slice]
    runs: Mapping[int, Runs]

    def positions(self, rank: int, numbers: Positions) -> Positions:
        """Where coordinates of a process lie in the block, by their numbers among those that it holds of the block."""
        runs, first = self.runs[rank], self.taken[rank].start
        if runs.starts.size == 1:
            return numbers + np.uint32(int(runs.starts[0]) + first - self.start)
        return (runs.coordinates(numbers.astype(np.int64) + first) - self.start).astype(np.uint32)

    @property
    def key(self) -> tuple[str, int]:
        """Tells it from other blocks."""
        return self.name, self.start


def undivided(tensors: Mapping[str, TensorInfo]) -> list[Block]:
    """All blocks of all tensors, which one process holds."""
    return owned_by(0, {name: {0: Runs.whole(info.numel)} for name, info in tensors.items()})


def owned_by(rank: int, tensors: Mapping[str, Mapping[int, Runs]]) -> list[Block]:
    """All blocks of all tensors, for one process that gets them from those with which it holds a tensor."""
    return [
        Block(name, start, stop, rank, dict(pieces(of, start, stop)) if rank in of else {}, of)
        for name, of in tensors.items()
        for start, stop in blocks_of(sum(runs.numel for runs in of.values()))
    ]


def divided(tensors: Mapping[str, TensorInfo], held: Mapping[str, Held], processes: Processes) -> list[Block]:
    """All blocks of all tensors, in order; every process must call it, with the same tensors."""
    # Late: it needs torch, which one process alone can do without.
    from maskreg.flow.apply.sharded import Work, assigned

    works = defaultdict[tuple[int, ...], list[Work]](list)
    publishers = dict(zip(tensors, _publishers(tensors, held, processes), strict=True))
    for number, (name, info) in enumerate(tensors.items()):
        if processes.rank not in publishers[name]:
            continue
        for start, stop in blocks_of(info.numel):
            slices = dict(pieces(held[name].of, start, stop))
            work = Work(number, start, stop, processes.rank, slices, None, stop - start)
            works[publishers[name]].append(work)
    known = {
        (work.item, work.start): work for ranks in sorted(works) for work in assigned(works[ranks], processes.rank)
    }
    own = [key for key, work in known.items() if work.owner == processes.rank]
    owners = {key: rank for rank, keys in zip(processes.ranks, processes.gathered(own), strict=True) for key in keys}
    return [
        Block(
            *(name, start, stop, owners[number, start]),
            taken=known[number, start].slices if (number, start) in known else {},
            runs=held[name].of,
        )
        for number, (name, info) in enumerate(tensors.items())
        for start, stop in blocks_of(info.numel)
    ]


def _publishers(
    tensors: Mapping[str, TensorInfo], held: Mapping[str, Held], processes: Processes
) -> Iterator[tuple[int, ...]]:
    """Of each tensor, the processes that publish it: of the groups that hold it whole, the one with the least to do."""
    everywhere = processes.gathered([tuple(held[name].of) for name in tensors])
    load = defaultdict[int, float](float)
    for number, info in enumerate(tensors.values()):
        groups = sorted({each[number] for each in everywhere if each[number]})
        group = min(groups, key=lambda ranks: (max(load[rank] for rank in ranks), ranks))
        for rank in group:
            load[rank] += info.numel / len(group)
        yield group
