"""Applying in memory: patch a running model in place, in one process or many; at once, or in two phases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.distributed import ProcessGroup

from maskreg.device import own_stream
from maskreg.errors import WrongCheckpointError
from maskreg.flow.apply.blocks import Blocks, Live, Model, matched, mesh_device
from maskreg.flow.apply.moving import QUIET, Changes, Patch, patch_of
from maskreg.flow.apply.sharded import patch_sharded, stage_sharded
from maskreg.flow.apply.shared_swaps import shared_swaps
from maskreg.live.alone import Alone
from maskreg.live.memory import bits_of
from maskreg.live.naming import refuse_wrapped
from maskreg.live.processes import Processes
from maskreg.parallel import each, ordered, worker_count
from maskreg.tensors.bus import on_device
from maskreg.update.delta import Change, Delta
from maskreg.update.route import Route, SpanRoute

T = TypeVar("T")

AT_ONCE = {"cuda": 4}
"""Blocks that a thread decodes at once, about 20 MB each, where not one; 16 threads with four each keep a GPU busy."""

_MOST_AT_ONCE = max(AT_ONCE.values())

Open = Callable[[], Sequence[Delta]]
"""Opens deltas, of which each continues the one before."""


def patch_(model: Model, deltas: Open, *, jobs: int | None = None, group: ProcessGroup | None = None) -> None:
    """Patch a model in place with deltas, of which each continues the one before.

    Two passes, because half a patch cannot be undone::

        pass 1, all tensors:      leaves right? -> decode -> leaves right?      nothing is written
        pass 2, changed tensors:  leaves still right? -> decode -> write

    So when anything does not match, the model is untouched. Pass 2 checks its input again: if a training step
    changed the weights of block 7 in between, decoding them would write noise.

    Memory is bounded by one block per thread, four on a GPU, and a copy of a tensor that is not contiguous; of a
    sharded model, by what :mod:`maskreg.flow.apply.sharing` keeps too. Tensors that share memory (tied weights) are
    patched once; tensors that overlap in any other way are refused. Tensors that the artifacts do not know stay.

    Where several processes hold the model, all of them must call this. If it fails on one, before anything is written,
    it fails on all, and nothing is written on any. They are ``group``; by default all if a tensor is sharded, the group
    of ``DistributedDataParallel`` if the model is wrapped in it, and otherwise this one alone.
    """
    threads = worker_count(jobs)
    route, live, processes, sharded_over = _matched_by_all(model, deltas, group)
    if sharded_over is not None:
        patch_sharded(route, live, sharded_over, threads)
        return

    def check() -> None:
        for delta in route.deltas:
            delta.artifact.verify_rest(jobs=threads)
        _patch_each(route, live, threads, write=False)

    processes.together(check)
    changing = [item for item in live if item.route.changes]
    processes.together(lambda: _patch_each(route, changing, threads, write=True))


def _matched_by_all(
    model: Model, deltas: Open, group: ProcessGroup | None
) -> tuple[Route, list[Live], Processes | Alone, Processes | None]:
    """The route, the model's tensors on it, the processes that hold the model, and those that share its tensors."""
    if isinstance(model, torch.nn.Module):
        refuse_wrapped(model)
    processes = _processes_of(model, group)
    route = processes.together(lambda: Route(deltas()))
    live = processes.together(lambda: matched(route, model, processes.rank))
    processes.require_same([(str(d.artifact.digest), d.revert) for d in route.deltas], "artifacts")
    if isinstance(processes, Alone) or mesh_device(model) is None:
        return route, live, processes, None
    processes.require_same([item.route.name for item in live if len(item.held.of) > 1], "tensors")
    return route, live, processes, processes


def _processes_of(model: Model, group: ProcessGroup | None) -> Processes | Alone:
    """The processes that hold the model."""
    device_type = mesh_device(model)
    if group is None and device_type is None:
        parallel: Any = sys.modules.get("torch.nn.parallel")
        modules = model.modules() if isinstance(model, torch.nn.Module) and parallel is not None else ()
        ddp = next((each for each in modules if isinstance(each, parallel.DistributedDataParallel)), None)
        if ddp is None:
            return Alone()
        group, device_type = ddp.process_group, "cpu"
    if device_type in (None, "cpu"):
        return Processes(group, torch.device("cpu"))
    return Processes(group, torch.device(device_type, torch.get_device_module(device_type).current_device()))


def _each(live: Sequence[Live], work: Callable[[Live, torch.Tensor, torch.Tensor], T], threads: int) -> Iterator[T]:
    """What work on each tensor gives, on threads; given its bits, and the same in one dimension, perhaps as a copy."""
    # Kernels that were launched earlier: the threads' own streams do not wait for them.
    for device in {item.held.local.device for item in live if item.held.local.is_cuda}:
        torch.cuda.synchronize(device)

    def on_thread(item: Live) -> T:
        local = item.held.local
        # no_grad holds for one thread only.
        with torch.no_grad(), own_stream(local.device):
            bits = bits_of(local)
            return work(item, bits, bits.contiguous().reshape(-1))

    return ordered(on_thread, live, jobs=threads, size=lambda item: item.held.local.numel())


def _in_batches(item: Live, flat: torch.Tensor) -> Iterator[tuple[list[SpanRoute], list[torch.Tensor]]]:
    """Blocks of a tensor that a thread works on at once, and what ``flat``, the tensor's bits in one dimension, has."""
    spans = item.route.spans()
    while batch := list(islice(spans, AT_ONCE.get(flat.device.type, 1))):
        yield batch, [flat[span.start : span.stop] for span in batch]


def _patch_each(route: Route, live: list[Live], threads: int, *, write: bool) -> None:
    """Patch tensors that this process holds whole; or only check what patching would give."""
    blocks = Blocks(route, write=write, most=_MOST_AT_ONCE)

    def patch(item: Live, bits: torch.Tensor, flat: torch.Tensor) -> None:
        for batch, at_hand in _in_batches(item, flat):
            for values, result in zip(at_hand, blocks(batch, at_hand), strict=True):
                if write:
                    values.copy_(result)
        if write and not bits.is_contiguous():
            bits.copy_(flat.reshape(bits.shape))

    for _ in _each(live, patch, threads):
        pass


class Staged:
    """A change of a model that is ready to be written, by all processes that hold it.

    Attributes:
        moved: elements that this process will write.
    """

    def __init__(self, patches: Sequence[Patch], processes: Processes | Alone, jobs: int) -> None:
        """Take what differs; nothing is written yet."""
        self._patches = [patch for patch in patches if patch.movers.at.numel()]
        self._processes = processes
        self._jobs = jobs
        self.moved = sum(patch.movers.at.numel() for patch in self._patches)

    @torch.no_grad()
    def commit(self) -> None:
        """Write the change: all of it, or, where that fails, nothing; called by all processes.

        Raises:
            WrongCheckpointError: the model is not what it was when the change was staged, and was left alone; or it
                could not be restored, and the message says so.
        """
        written: list[tuple[Patch, int]] = []
        try:
            self._processes.together(lambda: self._write(written))
        except BaseException as error:
            for patch, count in written:
                if patch.back(count).exchange() < count:
                    fault = "something else wrote to it while it was written; the model is now half patched"
                    raise WrongCheckpointError(patch.name, fault, hint="load the model again") from error
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


def stage(model: Model, deltas: Open, *, jobs: int | None = None, folder: Path | None = None) -> Staged:
    """Work out what deltas, of which each continues the one before, make of a model, which can be in use.

    A block goes through all deltas before the next one is read, so what is staged is one change, with the last bits of
    each element. It takes 8 bytes for each element of 16 bits that changes, on the device that holds it::

        stage     read blocks -> leaves right? -> decode -> leaves right? -> what differs    the model is only read
        commit    elements as they were? -> write                                            nothing is decoded

    Processes: as for :func:`patch_`.

    Args:
        folder: where processes of this machine that each hold the model whole, on the CPU, share what they work out;
            made for the user alone, and refused if others can write to it.

    Raises:
        WrongCheckpointError: the model is not what the first delta applies to.
        CorruptError: a delta is damaged.
        UsageError: the model cannot be patched in place, or other users can write to ``folder``.
    """
    threads = worker_count(jobs)
    route, live, processes, sharded_over = _matched_by_all(model, deltas, None)
    if sharded_over is not None:
        patches = stage_sharded(route, live, sharded_over, threads)
    else:
        patches = processes.together(lambda: _staged(route, live, threads, folder))
    return Staged(patches, processes, threads)


def _staged(route: Route, live: Sequence[Live], threads: int, folder: Path | None) -> list[Patch]:
    """Patches of tensors that this process holds whole."""
    is_shared = all(not on_device(item.held.local) for item in live) and any(
        step.change is Change.DECODE for item in live for step in item.route.steps
    )
    with shared_swaps(folder if is_shared else None, route, threads) as moved:
        changes = Changes(route, most=_MOST_AT_ONCE, moved=moved)

        def patches(item: Live, bits: torch.Tensor, flat: torch.Tensor) -> list[Patch]:
            return [
                patch_of(item.route.name, bits, span.start, movers)
                for batch, at_hand in _in_batches(item, flat)
                for span, movers in zip(batch, changes(batch, at_hand), strict=True)
            ]

        return [patch for of_tensor in _each(live, patches, threads) for patch in of_tensor]
