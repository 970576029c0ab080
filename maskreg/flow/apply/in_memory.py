"""Applying in memory: patch the tensors of a running model in place, on any device, in one process or many."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.distributed import ProcessGroup

from maskreg.artifact.reader import Artifact
from maskreg.device import own_stream
from maskreg.errors import UsageError
from maskreg.flow.apply.blocks import Blocks, Live, Model, matched, mesh_device
from maskreg.flow.apply.sharded import patch_sharded
from maskreg.live.memory import CODES
from maskreg.live.naming import refuse_wrapped
from maskreg.live.processes import Processes
from maskreg.parallel import ordered, worker_count
from maskreg.update.delta import Delta
from maskreg.update.route import Route, SpanRoute

_AT_ONCE = {"cuda": 4}
"""Blocks that a thread decodes at once, about 20 MB each, where not one; 16 threads with four each keep a GPU busy."""


MOST_AT_ONCE = max(_AT_ONCE.values())
"""The most, on any device."""

Open = Callable[[], Sequence[Delta]]
"""Opens deltas, of which each continues the one before."""


def apply_(
    model: Model,
    artifact: Artifact,
    *,
    revert: bool = False,
    jobs: int | None = None,
    group: ProcessGroup | None = None,
) -> None:
    """Patch a model in place: the source into the target, or back with ``revert``; see :func:`patch_`."""
    patch_(model, lambda: [Delta(artifact, revert=revert)], jobs=jobs, group=group)


def switching(before: Artifact, after: Artifact) -> list[Delta]:
    """The deltas from one target to another."""
    if before.digest == after.digest:
        raise UsageError(f"{before.digest.short} was given twice: there is nothing to switch to")
    return [Delta(before, revert=True), Delta(after)]


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
    route, live, processes, is_sharded = matched_by_all(model, deltas, group)
    if processes is None:
        _patch(route, live, threads, lambda work: work())
    elif is_sharded:
        patch_sharded(route, live, processes, threads)
    else:
        _patch(route, live, threads, processes.together)


def matched_by_all(
    model: Model, deltas: Open, group: ProcessGroup | None
) -> tuple[Route, list[Live], Processes | None, bool]:
    """The route, the model's tensors on it, the processes that hold the model, and whether they share its tensors."""
    if isinstance(model, torch.nn.Module):
        refuse_wrapped(model)
    processes = _processes_of(model, group)
    if processes is None:
        route = Route(deltas())
        return route, matched(route, model), None, False
    route = processes.together(lambda: Route(deltas()))
    live = processes.together(lambda: matched(route, model, processes.rank))
    processes.require_same([(str(d.artifact.digest), d.revert) for d in route.deltas], "artifacts")
    is_sharded = mesh_device(model) is not None
    if is_sharded:
        processes.require_same([item.route.name for item in live if len(item.held.of) > 1], "tensors")
    return route, live, processes, is_sharded


def _processes_of(model: Model, group: ProcessGroup | None) -> Processes | None:
    """Those that hold the model; None for this process alone."""
    device_type = mesh_device(model)
    if group is None and device_type is None:
        parallel: Any = sys.modules.get("torch.nn.parallel")
        modules = model.modules() if isinstance(model, torch.nn.Module) and parallel is not None else ()
        ddp = next((each for each in modules if isinstance(each, parallel.DistributedDataParallel)), None)
        if ddp is None:
            return None
        group, device_type = ddp.process_group, "cpu"
    if device_type in (None, "cpu"):
        return Processes(group, torch.device("cpu"))
    return Processes(group, torch.device(device_type, torch.get_device_module(device_type).current_device()))


def _patch(route: Route, live: list[Live], threads: int, together: Callable[[Callable[[], None]], None]) -> None:
    """Patch tensors that this process holds whole, tensor by tensor."""

    def check() -> None:
        for delta in route.deltas:
            delta.artifact.verify_rest(jobs=threads)
        settle_launched(live)
        _patch_each(route, live, threads, write=False)

    together(check)
    changing = [item for item in live if item.route.changes]
    together(lambda: _patch_each(route, changing, threads, write=True))


def settle_launched(live: Sequence[Live]) -> None:
    """Wait for kernels that were launched earlier: the threads' own streams do not."""
    for device in {item.held.local.device for item in live if item.held.local.is_cuda}:
        torch.cuda.synchronize(device)


def in_batches(item: Live, flat: torch.Tensor) -> Iterator[tuple[list[SpanRoute], list[torch.Tensor]]]:
    """Blocks of a tensor that a thread works on at once, and what ``flat``, the tensor's bits in one dimension, has."""
    spans = item.route.spans()
    while batch := list(islice(spans, _AT_ONCE.get(flat.device.type, 1))):
        yield batch, [flat[span.start : span.stop] for span in batch]


def _patch_each(route: Route, live: list[Live], threads: int, *, write: bool) -> None:
    """Patch each tensor on a thread; or only check what patching would give."""
    blocks = Blocks(route, write=write, most=MOST_AT_ONCE)

    def patch(item: Live) -> None:
        local = item.held.local
        # no_grad holds for one thread only.
        with torch.no_grad(), own_stream(local.device):
            bits = local.detach().view(CODES[local.element_size()])
            flat = bits.contiguous().reshape(-1)
            for batch, at_hand in in_batches(item, flat):
                for values, result in zip(at_hand, blocks(batch, at_hand), strict=True):
                    if write:
                        values.copy_(result)
            if write and not bits.is_contiguous():
                bits.copy_(flat.reshape(bits.shape))

    for _ in ordered(patch, live, jobs=threads, size=lambda item: item.held.local.numel()):
        pass
