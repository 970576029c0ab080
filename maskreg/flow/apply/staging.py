"""Applying in two phases: deltas are staged while the model is in use, and committed in a short pause.

::

    stage     read blocks -> leaves right? -> decode -> leaves right? -> what differs       the model is only read
    commit    elements as they were? -> write -> read back                                  nothing is decoded or hashed

Of several deltas in a row a block goes through all before the next one is read, so what is staged is one change, with
the last bits of each element. It takes 8 bytes for each element of 16 bits that changes, on the device that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch

from maskreg.device import own_stream
from maskreg.errors import WrongCheckpointError
from maskreg.flow.apply.blocks import Blocks, Live, Model
from maskreg.flow.apply.in_memory import AT_ONCE, matched_by_all, settle_launched
from maskreg.flow.apply.moving import Patch, moved_between, patch_of
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
        self._together(self._check)
        written: list[Patch] = []
        try:
            self._together(lambda: self._write(written))
        except BaseException:
            self._restore(written)
            raise

    def _check(self) -> None:
        if (name := self._first(lambda patch: patch.holds(patch.movers.before))) is not None:
            raise WrongCheckpointError(
                name, "something else wrote to it after the change was staged; nothing was written", hint=_RELOAD
            )

    @torch.no_grad()
    def _write(self, written: list[Patch]) -> None:
        def write(patch: Patch) -> None:
            written.append(patch)  # before it is: a write that fails half-way is undone too
            patch.write(patch.movers.after)

        each(self._patches, write, self._jobs)
        if (name := self._first(lambda patch: patch.holds(patch.movers.after))) is not None:
            raise WrongCheckpointError(name, "does not hold what was written to it", hint=_RELOAD)

    @torch.no_grad()
    def _restore(self, written: Sequence[Patch]) -> None:
        for patch in written:
            patch.write(patch.movers.before)
        for patch in written:
            if not bool(patch.holds(patch.movers.before)):
                fault = "could not be written, and could not be restored; the model is half patched"
                raise WrongCheckpointError(patch.name, fault, hint="load the model again")

    def _first(self, holds: Callable[[Patch], torch.Tensor]) -> str | None:
        """The first tensor of which something does not hold."""
        results = list(ordered(holds, self._patches, jobs=self._jobs, size=lambda patch: patch.movers.at.numel()))
        # One answer for each device: each waits for its kernels.
        of_device: dict[torch.device, list[int]] = {}
        for number, result in enumerate(results):
            of_device.setdefault(result.device, []).append(number)
        false = [
            numbers[int(place)]
            for numbers in of_device.values()
            for place in torch.stack([results[number] for number in numbers]).logical_not().nonzero()[:, 0].tolist()
        ]
        return self._patches[min(false)].name if false else None


_RELOAD = "load the model again, and follow with it while nothing else writes to it"


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
    blocks = Blocks(route, write=False, most=max(AT_ONCE.values()))

    def patches(item: Live) -> list[Patch]:
        local, found = item.held.local, []
        # no_grad holds for one thread only.
        with torch.no_grad(), own_stream(local.device):
            bits = local.detach().view(CODES[local.element_size()])
            flat = bits.contiguous().reshape(-1)
            spans = item.route.spans()
            while batch := list(islice(spans, AT_ONCE.get(flat.device.type, 1))):
                at_hand = [flat[span.start : span.stop] for span in batch]
                for span, values, result in zip(batch, at_hand, blocks(batch, at_hand), strict=True):
                    if item.route.changes:
                        found.append(patch_of(item.route.name, bits, span.start, moved_between(values, result)))
        return found

    found = ordered(patches, live, jobs=threads, size=lambda item: item.held.local.numel())
    return [patch for of_tensor in found for patch in of_tensor]
