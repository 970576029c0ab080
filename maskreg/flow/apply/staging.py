"""Applying in two phases: deltas are staged while the model is in use, and committed in a short pause.

::

    stage     read blocks -> leaves right? -> decode -> leaves right? -> what differs       the model is only read
    commit    elements as they were? -> write                                               nothing is decoded or hashed

Of several deltas in a row a block goes through all before the next one is read, so what is staged is one change, with
the last bits of each element. It takes 8 bytes for each element of 16 bits that changes, on the device that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from maskreg.device import own_stream
from maskreg.errors import WrongCheckpointError
from maskreg.flow.apply.blocks import Live, Model
from maskreg.flow.apply.in_memory import MOST_AT_ONCE, in_batches, matched_by_all, settle_launched
from maskreg.flow.apply.moving import QUIET, Changes, Patch, patch_of
from maskreg.flow.apply.sharded import stage_sharded
from maskreg.live.memory import CODES
from maskreg.parallel import each, ordered, worker_count
from maskreg.update.route import Route

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from maskreg.flow.apply.in_memory import Open


class Staged:
    """A change of a model that is ready to be written, by all processes that hold it.

    Attributes:
        moved: elements that this process will write.
    """

    def __init__(self, patches: Sequence[Patch], together: Callable[[Callable[[], None]], None], jobs: int) -> None:
        """Take what differs; nothing is written yet."""
        self._patches = [patch for patch in patches if patch.movers.at.numel()]
        self._together = together
        self._jobs = jobs
        self.moved = sum(patch.movers.at.numel() for patch in self._patches)

    def commit(self) -> None:
        """Write the change: all of it, or, where that fails, nothing; called by all processes.

        Raises:
            WrongCheckpointError: the model is not what it was when the change was staged, and was left alone; or it
                could not be restored, and the message says so.
        """
        written: list[tuple[Patch, int]] = []
        try:
            self._together(lambda: self._write(written))
        except BaseException:
            with torch.no_grad():
                _take_back(written)
            raise

    def _write(self, written: list[tuple[Patch, int]]) -> None:
        def write(patch: Patch) -> None:
            with torch.no_grad():
                count = patch.exchange()
            written.append((patch, count))
            if count < patch.movers.at.numel():
                raise WrongCheckpointError(
                    patch.name,
                    "something else wrote to it after the change was staged; the model was left as it was",
                    hint=QUIET,
                )

        each(self._patches, write, self._jobs)


def _take_back(written: Sequence[tuple[Patch, int]]) -> None:
    for patch, count in written:
        if patch.back(count).exchange() < count:
            fault = "something else wrote to it while it was written; the model is now half patched"
            raise WrongCheckpointError(patch.name, fault, hint="load the model again")


def stage(model: Model, deltas: Open, *, jobs: int | None = None, group: ProcessGroup | None = None) -> Staged:
    """Work out what deltas, of which each continues the one before, make of a model, which may be in use.

    Processes: as for :func:`maskreg.flow.apply.in_memory.patch_`.

    Raises:
        WrongCheckpointError: the model is not what the first delta applies to.
        CorruptError: a delta is damaged.
        UsageError: the model cannot be patched in place.
    """
    threads = worker_count(jobs)
    route, live, processes, is_sharded = matched_by_all(model, deltas, group)
    if processes is None:
        return Staged(_staged(route, live, threads), lambda work: work(), threads)
    if is_sharded:
        return Staged(stage_sharded(route, live, processes, threads), processes.together, threads)
    return Staged(processes.together(lambda: _staged(route, live, threads)), processes.together, threads)


def _staged(route: Route, live: Sequence[Live], threads: int) -> list[Patch]:
    """Patches of tensors that this process holds whole."""
    settle_launched(live)
    changes = Changes(route, most=MOST_AT_ONCE)

    def patches(item: Live) -> list[Patch]:
        local, found = item.held.local, []
        # no_grad holds for one thread only.
        with torch.no_grad(), own_stream(local.device):
            bits = local.detach().view(CODES[local.element_size()])
            flat = bits.contiguous().reshape(-1)
            for batch, at_hand in in_batches(item, flat):
                for span, movers in zip(batch, changes(batch, at_hand), strict=True):
                    found.append(patch_of(item.route.name, bits, span.start, movers))
        return found

    found = ordered(patches, live, jobs=threads, size=lambda item: item.held.local.numel())
    return [patch for of_tensor in found for patch in of_tensor]
