"""Applying in memory: patch the tensors of a running model in place, on any device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from maskreg.artifact.reader import Artifact
from maskreg.device import own_stream
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.aliasing import NamedTensor, refuse_aliasing
from maskreg.live.layout import links
from maskreg.live.memory import CODES, DTYPES, storage_key
from maskreg.live.naming import find
from maskreg.parallel import Buffers, ordered, worker_count
from maskreg.tensors.dtypes import WIDE
from maskreg.tensors.leaves import check_after, check_before, differing_leaf, leaves_between
from maskreg.update.delta import Change, Delta, SpanDelta, TensorDelta

if TYPE_CHECKING:
    import numpy.typing as npt

_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_BLOCKS_ON_GPU = 4
"""Blocks that a thread decodes at once on a GPU, about 20 MB each; 16 threads with four each keep it busy."""


class _Live(NamedTuple):
    """A tensor of the model, and what becomes of it."""

    delta: TensorDelta
    tensor: torch.Tensor


def apply_(
    module_or_state_dict: torch.nn.Module | Mapping[str, torch.Tensor],
    artifact: Artifact,
    *,
    revert: bool = False,
    jobs: int | None = None,
) -> None:
    """Patch a model in place: the source into the target, or back.

    Two passes, because half a patch cannot be undone::

        pass 1, all tensors:      leaves right? -> decode -> leaves right?      nothing is written
        pass 2, changed tensors:  leaves still right? -> decode -> write

    So when anything does not match, the model is untouched. Pass 2 checks its input again: if a training step
    changed the weights of block 7 in between, decoding them would write noise.

    Memory is bounded by one block per thread, four on a GPU, and a copy of a tensor that is not contiguous. Tensors
    that share memory (tied weights) are patched once; tensors that overlap in any other way are refused. Tensors that
    the artifact does not know stay.

    Args:
        module_or_state_dict: holds every tensor of the artifact by name; prefixes of wrappers (``module.``,
            ``_orig_mod.``) are resolved where that is unambiguous.
        artifact: with a delta; with a reverse part to go back.
        revert: turn the target into the source.
        jobs: threads; by default one per CPU, at most 16.

    Raises:
        WrongCheckpointError: a tensor is missing, of another dtype or shape, or not what the artifact applies to; or
            something else wrote to it during patching, and the model is half patched.
        UsageError: the artifact adds, removes or reshapes tensors, or tensors overlap in memory: neither can be done
            in place.
        PartAbsentError: the artifact has no values for this direction, or the part is absent.
        CorruptError: the artifact is damaged.
    """
    threads = worker_count(jobs)
    delta = Delta(artifact, revert=revert)
    model = module_or_state_dict if isinstance(module_or_state_dict, torch.nn.Module) else None
    live = _unique(_matched(delta, _tensors_of(module_or_state_dict), model))
    changing = [item for item in live if item.delta.change is not Change.KEEP]
    refuse_aliasing(NamedTensor(item.delta.name, item.tensor, item.delta.change is not Change.KEEP) for item in live)
    artifact.verify_rest(jobs=threads)
    for device in {item.tensor.device for item in live if item.tensor.is_cuda}:
        # The threads' own streams do not wait for kernels launched earlier.
        torch.cuda.synchronize(device)
    _for_each(live, _TensorPatcher(delta, write=False), threads)
    _for_each(changing, _TensorPatcher(delta, write=True), threads)


class _TensorPatcher:
    """Patches one tensor, on any thread; or only checks what patching would give."""

    def __init__(self, delta: Delta, *, write: bool) -> None:
        self._delta = delta
        self._codec = delta.codec
        self._write = write
        self._buffers = [Buffers() for _ in range(_BLOCKS_ON_GPU)]

    def __call__(self, item: _Live) -> None:
        # no_grad holds for one thread only.
        with torch.no_grad(), own_stream(item.tensor.device):
            bits = item.tensor.detach().view(CODES[item.tensor.element_size()])
            flat = bits.contiguous().reshape(-1)
            self._patch(item.delta, flat)
            if self._write and not bits.is_contiguous():
                bits.copy_(flat.reshape(bits.shape))

    def _patch(self, tensor: TensorDelta, flat: torch.Tensor) -> None:
        spans = tensor.spans()
        while batch := list(islice(spans, _batch_size(flat.device))):
            at_hand = [flat[span.start : span.stop] for span in batch]
            for span, values in zip(batch, at_hand, strict=True):
                self._check_before(span, _on_host(values))
            for span, values, result in zip(batch, at_hand, self._results(batch, at_hand), strict=True):
                if self._write:
                    values.copy_(result)
                elif result is not values:
                    check_after(span.name, span.start, _on_host(result), span.leaves)

    def _check_before(self, span: SpanDelta, values: npt.NDArray[np.generic]) -> None:
        leaves = leaves_between(self._delta.before.leaves(span.name), span.start, span.stop)
        if not self._write:
            check_before(span.name, span.start, values, leaves)
        elif differing_leaf(values, leaves) is not None:
            raise WrongCheckpointError(
                span.name,
                "something else wrote to it while the model was being patched; the model is now half patched",
                hint="load the model again, and patch it while nothing else writes to it",
            )

    def _results(self, batch: Sequence[SpanDelta], at_hand: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        pairs = list(zip(batch, self._buffers, strict=False))
        coded = [span.coded(buffers).data for span, buffers in pairs if span.coded is not None]
        if coded and at_hand[0].device.type == "cpu":
            return [self._on_cpu(*block) for block in zip(at_hand, coded, self._buffers, strict=False)]
        if coded:
            return self._codec.decode_tensors(at_hand, coded)
        stored = [_as_tensor(span.stored(buffers), span) for span, buffers in pairs if span.stored is not None]
        return stored or at_hand

    def _on_cpu(self, values: torch.Tensor, block: memoryview, buffers: Buffers) -> torch.Tensor:
        result = buffers.array("values", values.numel(), np.int16)
        self._codec.decode(_on_host(values).view(np.uint16), block, result.view(np.uint16))
        return torch.from_numpy(result)


def _as_tensor(data: npt.NDArray[np.uint8], span: SpanDelta) -> torch.Tensor:
    return torch.from_numpy(data.view(f"<i{span.item_bytes}" if span.item_bytes > 1 else "u1"))


def _batch_size(device: torch.device) -> int:
    return _BLOCKS_ON_GPU if device.type == "cuda" else 1


def _for_each(live: list[_Live], patch: _TensorPatcher, jobs: int) -> None:
    for _ in ordered(patch, live, jobs=jobs, size=lambda item: item.tensor.numel()):
        pass


def _on_host(values: torch.Tensor) -> npt.NDArray[np.generic]:
    return values.cpu().numpy()


def _tensors_of(module_or_state_dict: torch.nn.Module | Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if isinstance(module_or_state_dict, torch.nn.Module):
        module_or_state_dict = module_or_state_dict.state_dict(keep_vars=True)
    # State dicts may hold other things too: whatever a module's get_extra_state returns.
    named = module_or_state_dict.items()
    return {name: value for name, value in named if isinstance(name, str) and isinstance(value, torch.Tensor)}


def _matched(delta: Delta, tensors: Mapping[str, torch.Tensor], model: torch.nn.Module | None) -> Iterator[_Live]:
    for tensor in delta.values():
        _refuse_reshaping(tensor)
    match = find(delta, tensors, model)
    present = {delta[name].row.name for join in match.joins for group in join.sources for name in group}
    for name in match.missing + match.ignored:
        if delta[name].row.name not in present:  # otherwise it is tied, and present under its other name
            raise WrongCheckpointError(name, "missing in this model", hint=delta.before.hint)
    for join in match.joins:
        if len(join.targets) > 1:
            raise WrongCheckpointError(
                join.first,
                f"the model keeps it in parts: {' and '.join(join.targets)}",
                hint="write a new checkpoint with maskreg apply, and load the model from it",
            )
        for name in (name for group in join.sources for name in group):
            _check_form(delta[name], tensors[join.targets[0]])
        shapes = {name: _shape(delta[name]) for group in join.sources for name in group}
        for link in links(join, shapes, tensors):
            yield _Live(delta[link.tensor], link.of_parameter)


def _shape(tensor: TensorDelta) -> tuple[int, ...]:
    return tensor.before.shape if tensor.before is not None else ()


def _refuse_reshaping(tensor: TensorDelta) -> None:
    if tensor.before != tensor.after:
        verb = "adds" if tensor.before is None else "removes" if tensor.after is None else "changes dtype or shape of"
        raise UsageError(
            f"the artifact {verb} tensor {tensor.name}, which cannot be done in place",
            hint="write a new checkpoint with maskreg apply",
        )


def _check_form(delta: TensorDelta, tensor: torch.Tensor) -> None:
    dtype = _NAMES.get(tensor.dtype, str(tensor.dtype))
    if delta.before is None:
        return
    if dtype != delta.before.dtype:
        wider = "; the delta is between stored bits" if dtype in WIDE else ""
        raise WrongCheckpointError(
            delta.name,
            f"{dtype} in this model, {delta.before.dtype} in the artifact{wider}",
            hint=f"load the model in {delta.before.dtype}, patch it, and cast it afterwards",
        )
    if tensor.layout is not torch.strided:
        raise WrongCheckpointError(
            delta.name, f"a sparse tensor ({tensor.layout}) in this model", hint="patch the model before it is pruned"
        )
    if tensor.is_meta or hasattr(tensor, "to_local"):
        state = "on the meta device" if tensor.is_meta else "sharded over processes"
        raise WrongCheckpointError(delta.name, f"its data is {state}", hint="load or gather it first")


def _unique(live: Iterable[_Live]) -> list[_Live]:
    """One entry for each piece of memory.

    Raises:
        WrongCheckpointError: tensors that share memory here have different contents in the artifact.
    """
    owners: dict[tuple[object, ...], _Live] = {}
    for item in live:
        owner = owners.setdefault(storage_key(item.tensor), item)
        if _fingerprints(owner.delta) != _fingerprints(item.delta):
            raise WrongCheckpointError(
                item.delta.name, f"shares memory with {owner.delta.name} in this model, but not in the artifact"
            )
    return list(owners.values())


def _fingerprints(tensor: TensorDelta) -> tuple[str, str]:
    return tensor.row.source_fingerprint, tensor.row.target_fingerprint
