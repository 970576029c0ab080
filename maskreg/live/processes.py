"""Processes that hold a model together: they fail together, and exchange tensors and bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from maskreg.errors import MaskregError, UsageError, WorkerError
from maskreg.live.alone import Alone
from maskreg.live.state import is_sharded

T = TypeVar("T")

_LARGE = 1 << 20  # bytes; arrays from this size on are sent from where they are

FAILURES = (MaskregError, OSError, RuntimeError, MemoryError)
"""What can go wrong on one process alone, and must then be known to all. Running out of GPU memory is among them."""


class Processes:
    """The processes of a group, this one among them.

    Attributes:
        group: the group; None for all processes, as they were first joined.
        ranks: of all processes of the group, in order.
    """

    def __init__(self, group: ProcessGroup | None, device: torch.device) -> None:
        """Take part; nothing is sent."""
        self.group = group
        self.rank = dist.get_rank()
        self.ranks = sorted(dist.get_process_group_ranks(group))
        self.device = device

    def together(self, work: Callable[[], T]) -> T:
        """Do work, and go on only if no process failed at it.

        A process that failed raises its error; the others raise the error of the first process that did.
        """
        own: BaseException | None = None
        told: MaskregError | None = None
        result: list[T] = []
        try:
            result.append(work())
        except FAILURES as error:
            own = error
            told = error if isinstance(error, MaskregError) else WorkerError(f"{type(error).__name__}: {error}")
        failures = self.gathered(told)
        if own is not None:
            try:
                raise own
            finally:
                del own, told, failures  # the error holds this frame
        for rank, failure in zip(self.ranks, failures, strict=True):
            if failure is not None:
                failure.message = f"process {rank}: {failure.message}"
                raise failure
        return result[0]

    def gathered(self, value: T) -> list[T]:
        """A value of each process, in the order of the ranks."""
        values: list[Any] = [None] * len(self.ranks)
        dist.all_gather_object(values, value, self.group)
        by_rank = dict(zip(dist.get_process_group_ranks(self.group), values, strict=True))
        return [by_rank[rank] for rank in self.ranks]

    def require_same(self, value: object, subject: str) -> None:
        """Refuse to go on if processes do not have the same."""
        first, *rest = self.gathered(value)
        for rank, own in zip(self.ranks[1:], rest, strict=True):
            if own != first:
                raise UsageError(
                    f"process {rank} has other {subject} than process {self.ranks[0]}",
                    hint="call it in all processes, with the same arguments and the same model",
                )

    def exchange(
        self, sent: Mapping[int, Sequence[torch.Tensor]], expected: Mapping[int, int]
    ) -> dict[int, torch.Tensor]:
        """Send uint8 tensors of one dimension, as one, to each rank; receive as many bytes as expected, by rank."""
        outgoing = {
            rank: [torch.cat([each.to(self.device) for each in parts])] for rank, parts in sent.items() if parts
        }
        received = self._transfer(outgoing, {rank: [size] for rank, size in expected.items()})
        return {rank: parts[0] for rank, parts in received.items()}

    def _transfer(
        self, sent: Mapping[int, Sequence[torch.Tensor]], expected: Mapping[int, Sequence[int]]
    ) -> dict[int, list[torch.Tensor]]:
        """The same with each tensor on its own, and the sizes of several expected from a rank."""
        received = {
            rank: [torch.empty(size, dtype=torch.uint8, device=self.device) for size in sizes]
            for rank, sizes in expected.items()
        }
        # In one order everywhere, as some backends match messages by it.
        operations = [
            dist.P2POp(call, each.to(self.device), rank, self.group)
            for call, of_ranks in ((dist.isend, sent), (dist.irecv, received))
            for rank, parts in sorted(of_ranks.items())
            for each in parts
        ]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        return received

    def deliver(self, parcels: Mapping[int, T]) -> dict[int, T]:
        """Send a value to other processes, or this one, by rank; returns what each has sent to this one."""
        packed = {rank: _packed(parcel) for rank, parcel in parcels.items() if rank != self.rank}
        sizes = self.gathered({rank: [part.numel() for part in parts] for rank, parts in packed.items()})
        expected = {rank: each[self.rank] for rank, each in zip(self.ranks, sizes, strict=True) if self.rank in each}
        received = {rank: parcel for rank, parcel in parcels.items() if rank == self.rank}
        for rank, parts in self._transfer(packed, expected).items():
            head, *buffers = (part.cpu().numpy() for part in parts)
            received[rank] = pickle.loads(head.data, buffers=buffers)  # noqa: S301 # of a process of this very job
        return received


def _packed(value: object) -> list[torch.Tensor]:
    """A pickled value, and the large arrays in it, which are not copied."""
    large: list[memoryview] = []

    def is_within(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.readonly or view.nbytes < _LARGE:
            return True
        large.append(view)
        return False

    head = bytearray(pickle.dumps(value, protocol=5, buffer_callback=is_within))
    return [torch.frombuffer(part, dtype=torch.uint8) for part in (head, *large)]


def own_group() -> Processes:
    """All processes, which exchange in main memory and in a group of their own: other threads send in others."""
    return Processes(dist.new_group(backend="gloo"), torch.device("cpu"))


@contextmanager
def all_processes(model: torch.nn.Module | Mapping[str, torch.Tensor]) -> Iterator[Processes | Alone]:
    """All processes, for work on a model inside; the one that there is, where torch.distributed is not in use.

    Raises:
        UsageError: some processes hold parts of the model, and others none.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        yield Alone()
        return
    processes = own_group()
    try:
        sharded = processes.gathered(is_sharded(model))
        if len({*sharded}) > 1:
            raise UsageError(
                f"process {processes.ranks[sharded.index(False)]} holds no part of a model that others hold parts of",
                hint="call it in all processes with the model that is sharded over them: fully_shard(model)",
            )
        yield processes
    finally:
        dist.destroy_process_group(processes.group)
