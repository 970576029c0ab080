"""Processes that hold a model together: they fail together, and exchange tensors.

To gather a model, every process takes part, in one order: all hold one whole parameter for a moment, and the first
process copies it to host memory. So no process ever has the whole model on its device, and only the first has it at
all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from maskreg.errors import MaskregError, UsageError, WorkerError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")

FAILURES = (MaskregError, OSError, RuntimeError, MemoryError)
"""What may go wrong on one process alone, and must then be known to all. Running out of GPU memory is among them."""


class Processes:
    """The processes of a group, this one among them. ``ranks``: of all processes of the group, in order."""

    def __init__(self, group: ProcessGroup | None, device: torch.device) -> None:
        """Take part; nothing is sent."""
        self._group = group
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
            raise own
        for rank, failure in zip(self.ranks, failures, strict=True):
            if failure is not None:
                failure.message = f"process {rank}: {failure.message}"
                raise failure
        return result[0]

    def gathered(self, value: T) -> list[T]:
        """A value of each process, in the order of the ranks."""
        values: list[Any] = [None] * len(self.ranks)
        dist.all_gather_object(values, value, self._group)
        by_rank = dict(zip(dist.get_process_group_ranks(self._group), values, strict=True))
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
            rank: torch.cat([each.to(self.device) for each in parts]) for rank, parts in sent.items() if len(parts)
        }
        received = {rank: torch.empty(n, dtype=torch.uint8, device=self.device) for rank, n in expected.items()}
        # In one order everywhere, as some backends match messages by it.
        operations = [dist.P2POp(dist.isend, each, rank, self._group) for rank, each in sorted(outgoing.items())]
        operations += [dist.P2POp(dist.irecv, each, rank, self._group) for rank, each in sorted(received.items())]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        return received


def whole_state(
    model: torch.nn.Module | Mapping[str, torch.Tensor], processes: Processes
) -> dict[str, torch.Tensor] | None:
    """The whole tensors of a sharded model, in the host memory of the first process; None in the others."""
    is_first = processes.rank == processes.ranks[0]
    named = (model.state_dict(keep_vars=True) if isinstance(model, torch.nn.Module) else model).items()
    wholes: dict[str, torch.Tensor] = {}
    for name, value in named:
        if isinstance(value, torch.Tensor):
            whole = value.detach()
            if hasattr(whole, "full_tensor"):
                whole = whole.full_tensor()
            if is_first:
                wholes[name] = whole.cpu()
    return wholes if is_first else None
