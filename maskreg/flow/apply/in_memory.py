"""Applying in memory: patch the tensors of a running model, in place, on whatever device they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from maskreg.artifact.reader import Artifact
from maskreg.device import own_stream
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.aliasing import Held, refuse_overlap
from maskreg.live.layout import links
from maskreg.live.memory import CODES, DTYPES, place_of
from maskreg.live.naming import find
from maskreg.parallel import ordered, worker_count
from maskreg.tensors.blocks import blocks_of, rechunked
from maskreg.tensors.dtypes import WIDE
from maskreg.tensors.leaves import check_after, check_before, differing_leaf, leaves_between
from maskreg.update.direction import Change, Direction, Step

if TYPE_CHECKING:
    import numpy.typing as npt

    from maskreg.digest import LeafHashes

_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_BLOCKS_ON_GPU = 4
"""Blocks that a thread gives a GPU at once; 16 threads with so many each keep it busy. Each takes some 20 MB there."""


class _Live(NamedTuple):
    step: Step
    tensor: torch.Tensor


def apply_(
    module_or_state_dict: torch.nn.Module | Mapping[str, torch.Tensor],
    artifact: Artifact,
    *,
    revert: bool = False,
    jobs: int | None = None,
) -> None:
    """Patch a model in place: the source into the target, or back.

    All leaves of all tensors, before and after, are checked in a first pass: when anything does not match, nothing
    has been touched. Memory is bounded by a block for each thread, on a GPU by four (and a copy of a tensor that is
    not contiguous).
    Tensors that share memory (tied weights) are patched once; those that overlap in any other way are refused.
    Tensors that the artifact does not know stay. A block is checked again just before it is overwritten.

    Args:
        module_or_state_dict: holds every tensor of the artifact by name; what wrappers put into names
            (``module.``, ``_orig_mod.``) is seen through where that is unambiguous.
        artifact: with a delta; with a reverse part to go back.
        revert: turn the target into the source.
        jobs: threads; by default what the machine has.

    Raises:
        WrongCheckpointError: a tensor is missing, of another dtype or shape, or not what the artifact is applied
            to; or something else wrote to it meanwhile, and the model is half patched.
        UsageError: the artifact adds, removes or reshapes tensors, or tensors overlap in memory: none of that can
            be done in place.
        PartAbsentError: the artifact has no values for this direction, or they are not here.
        CorruptError: the artifact is damaged.
    """
    threads = worker_count(jobs)
    direction = Direction(artifact, revert=revert)
    model = module_or_state_dict if isinstance(module_or_state_dict, torch.nn.Module) else None
    live = _unique(_matched(direction, _tensors_of(module_or_state_dict), model))
    refuse_overlap(Held(item.step.name, item.tensor, item.step.change is not Change.KEEP) for item in live)
    artifact.verify_rest(jobs=threads)
    for device in {item.tensor.device for item in live if item.tensor.is_cuda}:
        # The threads' own streams do not wait for what was asked of the GPU before.
        torch.cuda.synchronize(device)
    _for_each(live, _Patcher(direction, write=False), threads)
    _for_each([item for item in live if item.step.change is not Change.KEEP], _Patcher(direction, write=True), threads)


class _Patcher:
    """Patches one tensor, on any thread; or only checks what patching would give."""

    def __init__(self, direction: Direction, *, write: bool) -> None:
        self._direction = direction
        self._codec = direction.artifact.codec(direction.part)
        self._write = write

    def __call__(self, item: _Live) -> None:
        # Whether gradients are recorded is a property of the thread.
        with torch.no_grad(), own_stream(item.tensor.device):
            bits = item.tensor.detach().view(CODES[item.tensor.element_size()])
            flat = bits.contiguous().reshape(-1)
            self._patch(item.step, flat)
            if self._write and not bits.is_contiguous():
                bits.copy_(flat.reshape(bits.shape))

    def _patch(self, step: Step, flat: torch.Tensor) -> None:
        before, after = self._direction.leaves(step)
        stored = self._stored(step)
        numbered = enumerate(blocks_of(flat.numel()))
        while together := list(islice(numbered, _at_once(flat.device))):
            runs = [flat[start:stop] for _, (start, stop) in together]
            for run, (_, (start, stop)) in zip(runs, together, strict=True):
                if self._write:
                    _check_still(step, _on_host(run), leaves_between(before, start, stop))
                else:
                    check_before(step.name, start, _on_host(run), leaves_between(before, start, stop))
            if step.change is Change.DECODE:
                results = self._decoded(step, runs, [number for number, _ in together])
            else:
                results = runs if step.change is Change.KEEP else list(islice(stored, len(runs)))
            for run, result, (_, (start, stop)) in zip(runs, results, together, strict=True):
                if self._write:
                    run.copy_(result)
                else:
                    check_after(step.name, start, _on_host(result), leaves_between(after, start, stop))

    def _decoded(self, step: Step, runs: list[torch.Tensor], numbers: list[int]) -> list[torch.Tensor]:
        artifact, part = self._direction.artifact, self._direction.part
        blocks = [artifact.block(part, step.row.first_block + number) for number in numbers]
        return self._codec.decode_tensors(runs, blocks)

    def _stored(self, step: Step) -> Iterator[torch.Tensor]:
        if step.change is Change.REPLACE and step.after is not None:
            for values in rechunked(self._direction.artifact.whole(step.row, self._direction.part), step.after):
                signed = f"<i{values.itemsize}" if values.itemsize > 1 else "u1"
                yield torch.from_numpy(values.copy().view(signed))


def _at_once(device: torch.device) -> int:
    return _BLOCKS_ON_GPU if device.type == "cuda" else 1


def _for_each(live: list[_Live], patch: _Patcher, jobs: int) -> None:
    with closing(ordered(patch, live, jobs=jobs)) as results:
        for _ in results:
            pass


def _check_still(step: Step, values: npt.NDArray[np.generic], leaves: LeafHashes) -> None:
    # Decoding what is no longer there would give noise, and nobody would be told.
    if differing_leaf(values, leaves) is not None:
        raise WrongCheckpointError(
            step.name,
            "something else wrote to it while the model was patched, which is now half done",
            hint="load the model again, and patch it while nothing else writes to it",
        )


def _on_host(run: torch.Tensor) -> npt.NDArray[np.generic]:
    return run.cpu().numpy()


def _tensors_of(module_or_state_dict: torch.nn.Module | Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if isinstance(module_or_state_dict, torch.nn.Module):
        module_or_state_dict = module_or_state_dict.state_dict(keep_vars=True)
    # State dicts may hold other things too, such as the state of a module's own making.
    return {name: value for name, value in module_or_state_dict.items() if isinstance(value, torch.Tensor)}


def _matched(
    direction: Direction, tensors: Mapping[str, torch.Tensor], model: torch.nn.Module | None
) -> Iterator[_Live]:
    steps = direction.steps
    for step in steps.values():
        _refuse_reshaping(step)
    found = find(steps, tensors, model)
    here = {steps[name].row.name for join in found.joins for group in join.sources for name in group}
    for name in found.missing + found.ignored:
        if steps[name].row.name not in here:  # otherwise it is tied, and here under its other name
            raise WrongCheckpointError(name, "missing in this model", hint=direction.wanted)
    for join in found.joins:
        if len(join.targets) > 1:
            raise WrongCheckpointError(
                join.first,
                f"the model keeps it in parts, as {' and '.join(join.targets)}",
                hint="maskreg apply writes a new checkpoint, which the model can be loaded from",
            )
        for name in (name for group in join.sources for name in group):
            _check_form(steps[name], tensors[join.targets[0]])
        shapes = {name: _shape(steps[name]) for group in join.sources for name in group}
        for link in links(join, shapes, tensors):
            yield _Live(steps[link.tensor], link.of_parameter)


def _shape(step: Step) -> tuple[int, ...]:
    return step.before.shape if step.before is not None else ()


def _refuse_reshaping(step: Step) -> None:
    if step.before != step.after:
        verb = "adds" if step.before is None else "removes" if step.after is None else "changes dtype or shape of"
        raise UsageError(
            f"the artifact {verb} tensor {step.name}, which cannot be done in place",
            hint="maskreg apply writes a new checkpoint",
        )


def _check_form(step: Step, tensor: torch.Tensor) -> None:
    dtype = _NAMES.get(tensor.dtype, str(tensor.dtype))
    if step.before is None:
        return
    if dtype != step.before.dtype:
        wider = "; its stored bits are what the delta is between" if dtype in WIDE else ""
        raise WrongCheckpointError(
            step.name,
            f"{dtype} in this model, {step.before.dtype} in the artifact{wider}",
            hint=f"load the model in {step.before.dtype}, patch it, and cast it afterwards",
        )
    if tensor.is_meta or hasattr(tensor, "to_local"):
        where = "on the meta device" if tensor.is_meta else "sharded over processes"
        raise WrongCheckpointError(step.name, f"its data is not here: it is {where}", hint="load or gather it first")


def _unique(live: Iterable[_Live]) -> list[_Live]:
    """One entry for each piece of memory.

    Raises:
        WrongCheckpointError: tensors that share memory here have different contents in the artifact.
    """
    owners: dict[tuple[object, ...], _Live] = {}
    for item in live:
        owner = owners.setdefault(place_of(item.tensor), item)
        if _prints(owner.step) != _prints(item.step):
            raise WrongCheckpointError(
                item.step.name, f"shares memory with {owner.step.name} in this model, but not in the artifact"
            )
    return list(owners.values())


def _prints(step: Step) -> tuple[str, str]:
    return step.row.source_fingerprint, step.row.target_fingerprint
