"""Applying in memory: patch the tensors of a running model in place, on any device, in one process or many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch

from maskreg.artifact.reader import Artifact
from maskreg.device import own_stream
from maskreg.errors import UsageError
from maskreg.flow.apply.blocks import Blocks
from maskreg.flow.apply.matching import Live, Model, is_sharded, matched
from maskreg.live.memory import CODES
from maskreg.parallel import ordered, worker_count
from maskreg.update.delta import Delta
from maskreg.update.route import Route, TensorRoute

_BLOCKS_ON_GPU = 4
"""Blocks that a thread decodes at once on a GPU, about 20 MB each; 16 threads with four each keep it busy."""


def apply_(model: Model, artifact: Artifact, *, revert: bool = False, jobs: int | None = None) -> None:
    """Patch a model in place: the source into the target, or back.

    Args:
        model: holds every tensor of the artifact by name; prefixes of wrappers (``module.``, ``_orig_mod.``) are
            resolved where that is unambiguous.
        artifact: with a delta; with a reverse part to go back.
        revert: turn the target into the source.
        jobs: threads; by default one per CPU, at most 16.

    Raises:
        WrongCheckpointError: a tensor is missing, of another dtype or shape, or not what the artifact applies to; or
            something else wrote to it during patching, and the model is half patched.
        AlreadyAppliedError: the model is the result already.
        UsageError: the artifact adds, removes or reshapes tensors, tensors overlap in memory, or a wrapper keeps them
            elsewhere: nothing can be done in place.
        PartAbsentError: the artifact has no values for this direction, or the part is absent.
        CorruptError: the artifact is damaged.
    """
    patch_(model, [Delta(artifact, revert=revert)], jobs=jobs)


def switch_(model: Model, before: Artifact, after: Artifact, *, jobs: int | None = None) -> None:
    """Patch a model in place: the target of one artifact into that of another, over the source of both.

    The source need not be anywhere: each block goes back to it and on in one go.

    Args:
        model: as :func:`apply_` takes it.
        before: the model is its target; with a reverse part.
        after: the model becomes its target; with a delta.
        jobs: threads; by default one per CPU, at most 16.

    Raises:
        PairMismatchError: the artifacts have different sources.
        UsageError: they are one artifact; or as :func:`apply_`.
        MaskregError: as :func:`apply_`.
    """
    if before.digest == after.digest:
        raise UsageError(f"{before.digest.short} was given twice: there is nothing to switch to")
    patch_(model, [Delta(before, revert=True), Delta(after)], jobs=jobs)


def patch_(model: Model, deltas: Sequence[Delta], *, jobs: int | None = None) -> None:
    """Patch a model in place with deltas, of which each continues the one before.

    Two passes, because half a patch cannot be undone::

        pass 1, all tensors:      leaves right? -> decode -> leaves right?      nothing is written
        pass 2, changed tensors:  leaves still right? -> decode -> write

    So when anything does not match, the model is untouched. Pass 2 checks its input again: if a training step
    changed the weights of block 7 in between, decoding them would write noise.

    Memory is bounded by one block per thread, four on a GPU, and a copy of a tensor that is not contiguous. Tensors
    that share memory (tied weights) are patched once; tensors that overlap in any other way are refused. Tensors that
    the artifacts do not know stay.

    Args:
        model: a module or a state dict.
        deltas: at least one.
        jobs: threads; by default one per CPU, at most 16.

    Raises:
        MaskregError: as :func:`apply_`.
    """
    threads = worker_count(jobs)
    route = Route(deltas)
    live = matched(route, model)
    if is_sharded(model):
        raise UsageError("the model is sharded over processes", hint="patch it before it is sharded")
    changing = [item for item in live if item.route.changes]
    for delta in route.deltas:
        delta.artifact.verify_rest(jobs=threads)
    for device in {item.held.local.device for item in live if item.held.local.is_cuda}:
        # The threads' own streams do not wait for kernels launched earlier.
        torch.cuda.synchronize(device)
    _for_each(live, _TensorPatcher(route, write=False), threads)
    _for_each(changing, _TensorPatcher(route, write=True), threads)


class _TensorPatcher:
    """Patches one tensor, on any thread; or only checks what patching would give."""

    def __init__(self, route: Route, *, write: bool) -> None:
        self._blocks = Blocks(route, write=write, most=_BLOCKS_ON_GPU)
        self._write = write

    def __call__(self, item: Live) -> None:
        local = item.held.local
        # no_grad holds for one thread only.
        with torch.no_grad(), own_stream(local.device):
            bits = local.detach().view(CODES[local.element_size()])
            flat = bits.contiguous().reshape(-1)
            self._patch(item.route, flat)
            if self._write and not bits.is_contiguous():
                bits.copy_(flat.reshape(bits.shape))

    def _patch(self, tensor: TensorRoute, flat: torch.Tensor) -> None:
        spans = tensor.spans()
        while batch := list(islice(spans, _batch_size(flat.device))):
            at_hand = [flat[span.start : span.stop] for span in batch]
            for values, result in zip(at_hand, self._blocks(batch, at_hand), strict=True):
                if self._write:
                    values.copy_(result)


def _batch_size(device: torch.device) -> int:
    return _BLOCKS_ON_GPU if device.type == "cuda" else 1


def _for_each(live: list[Live], patch: _TensorPatcher, jobs: int) -> None:
    for _ in ordered(patch, live, jobs=jobs, size=lambda item: item.held.local.numel()):
        pass
