"""What becomes of a model in memory: its tensors that an artifact patches, and their blocks.

Blocks are checked, decoded on the device that holds them, and checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import torch

from maskreg.digest import LeafHashes
from maskreg.errors import AlreadyAppliedError, WrongCheckpointError
from maskreg.live.held import Held
from maskreg.live.memory import NAMES, NamedTensor, leaves_of, refuse_aliasing, refuse_read_only, storage_key
from maskreg.live.naming import find, missing_error, quantized, quantized_error
from maskreg.live.shards import local_of
from maskreg.live.state import located, tensors_of
from maskreg.parallel import Buffers
from maskreg.tensors.bus import on_device, up
from maskreg.tensors.info import WIDE
from maskreg.tensors.leaves import first_difference, wrong_after, wrong_before
from maskreg.update.delta import SpanDelta
from maskreg.update.route import Route, SpanRoute, TensorRoute


class Live(NamedTuple):
    """A tensor of the model, and what becomes of it."""

    route: TensorRoute
    held: Held


Model = torch.nn.Module | Mapping[str, torch.Tensor]


def mesh_device(model: Model) -> str | None:
    """The type of device of the processes over which tensors of the model are distributed; None if none are."""
    for tensor in tensors_of(model).values():
        if hasattr(tensor, "to_local"):
            device_type: str = tensor.device_mesh.device_type  # type: ignore[attr-defined]
            return device_type
    return None


def matched(route: Route, model: Model, rank: int = 0) -> list[Live]:
    """Every tensor of the route in the model, one for each piece of memory; nothing is read."""
    module, tensors = model if isinstance(model, torch.nn.Module) else None, tensors_of(model)
    match = find(route, tensors, module)
    present = {route[name].steps[0].row.name for join in match.joins for group in join.sources for name in group}
    for name in match.missing + match.ignored:
        if route[name].steps[0].row.name not in present:  # otherwise it is tied, and present under its other name
            by = quantized(name, tensors, module)
            raise quantized_error(name, by) if by else missing_error(name, route, tensors, hint=route.hint)

    def check(name: str, target: str) -> None:
        _check_form(route[name], target, tensors, module)

    shapes = {name: () if tensor.before is None else tensor.before.shape for name, tensor in route.items()}
    hint = "apply it to the source on disk, and load the model from it"
    found = located(match.joins, shapes, tensors, check, rank=rank, hint=hint)
    live = _unique(Live(route[name], held) for name, held in found)
    memory: dict[object, NamedTensor] = {}
    for join in match.joins:
        tensor = local_of(tensors[join.targets[0]].detach())
        written = any(route[name].changes for group in join.sources for name in group)
        memory[storage_key(tensor)] = NamedTensor(join.targets[0], tensor, written)
    refuse_aliasing(memory.values())
    refuse_read_only(memory.values())
    return live


def _check_form(
    route: TensorRoute, target: str, tensors: Mapping[str, torch.Tensor], module: torch.nn.Module | None
) -> None:
    tensor, before = tensors[target], route.before
    dtype = NAMES.get(tensor.dtype, str(tensor.dtype))
    if before is None:
        return
    if dtype != before.dtype:
        if by := quantized(target, tensors, module):
            raise quantized_error(route.name, by)
        wider = "; the delta is between stored bits" if dtype in WIDE else ""
        raise WrongCheckpointError(
            route.name,
            f"{dtype} in this model, {before.dtype} in the artifact{wider}",
            hint=f"load the model in {before.dtype}, patch it, and cast it afterwards",
        )
    if tensor.layout is not torch.strided:
        raise WrongCheckpointError(
            route.name, f"a sparse tensor ({tensor.layout}) in this model", hint="patch the model before it is pruned"
        )
    if tensor.is_meta:
        raise WrongCheckpointError(route.name, "its data is on the meta device", hint="load it first")
    computes = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if not hasattr(tensor, "to_local") and computes:  # a subclass decides what operations on it do
        raise WrongCheckpointError(
            route.name,
            f"a {type(tensor).__name__} in this model, whose memory is not laid out as a plain tensor's",
            hint="patch the model before its weights are converted",
        )


def _unique(live: Iterable[Live]) -> list[Live]:
    """One entry for each piece of memory."""
    owners: dict[tuple[object, ...], Live] = {}
    for item in live:
        owner = owners.setdefault(storage_key(item.held.local), item)
        if owner.route.fingerprints != item.route.fingerprints:
            raise WrongCheckpointError(
                item.route.name, f"shares memory with {owner.route.name} in this model, but not in the artifact"
            )
    return list(owners.values())


class Blocks:
    """Turns blocks at hand into blocks of the result. Safe to call from several threads."""

    def __init__(self, route: Route, *, write: bool, most: int) -> None:
        """Prepare for calls with at most so many blocks; ``write`` is the second pass, which checks no result again."""
        self._route = route
        self._codecs = [delta.codec for delta in route.deltas]
        self._write = write
        self._buffers = [Buffers() for _ in range(most)]

    def __call__(self, spans: Sequence[SpanRoute], at_hand: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results, on the device of the blocks; in memory that the thread's next call uses again.

        Blocks at hand are integers of the elements' width, one-dimensional and contiguous, all on one device.
        """
        for span, hashes in zip(spans, leaves_of(at_hand), strict=True):
            leaf = first_difference(hashes, span.stations[0])
            if leaf is not None:
                self._refuse(span, hashes, leaf)
        values = list(at_hand)
        for number in range(len(self._route.deltas)):
            steps = [span.steps[number] for span in spans]
            self._take(number, steps, values)
            if not self._write:
                _check_results(steps, values)
        return values

    def _take(self, number: int, steps: Sequence[SpanDelta], values: list[torch.Tensor]) -> None:
        """Replace values by what a delta makes of them."""
        codec, coded = self._codecs[number], []
        for i, (step, buffers) in enumerate(zip(steps, self._buffers, strict=False)):
            if step.stored is not None:
                codes = step.stored(buffers).view(f"<i{step.item_bytes}" if step.item_bytes > 1 else "u1")
                values[i] = up(codes, values[i].device, "stored") if on_device(values[i]) else torch.from_numpy(codes)
            elif step.coded is not None:
                coded.append((i, step.coded(buffers).data))
        if coded and on_device(values[coded[0][0]]):
            results = codec.decode_tensors([values[i] for i, _ in coded], [block for _, block in coded])
            for (i, _), result in zip(coded, results, strict=True):
                values[i] = result
            return
        for i, block in coded:
            # Not the memory of the delta before, whose result is what this one applies to.
            decoded = self._buffers[i].array(f"values {number % 2}", values[i].numel(), np.int16)
            codec.decode(values[i].numpy().view(np.uint16), block, decoded.view(np.uint16))
            values[i] = torch.from_numpy(decoded)

    def _refuse(self, span: SpanRoute, hashes: LeafHashes, leaf: int) -> NoReturn:
        if self._write:
            raise WrongCheckpointError(
                span.name,
                "something else wrote to it while the model was being patched; the model is now half patched",
                hint="load the model again, and patch it while nothing else writes to it",
                half_patched=True,
            )
        *names, last = self._route.stations
        *stations, result = span.stations
        if first_difference(hashes, result) is None:
            raise AlreadyAppliedError(span.name, f"this model is already {last}", hint="use this model as it is")
        for name, station in zip(names[1:], stations[1:], strict=True):
            if first_difference(hashes, station) is None:
                raise WrongCheckpointError(
                    span.name,
                    f"this model is {name}, not {names[0]}",
                    hint="apply the second artifact alone: maskreg.apply_(model, after)",
                )
        raise wrong_before(span.name, span.start, span.stop - span.start, leaf, hint=self._route.hint)


def _check_results(steps: Sequence[SpanDelta], values: Sequence[torch.Tensor]) -> None:
    changed = [(step, result) for step, result in zip(steps, values, strict=True) if step.coded or step.stored]
    for (step, result), hashes in zip(changed, leaves_of([result for _, result in changed]), strict=True):
        leaf = first_difference(hashes, step.leaves)
        if leaf is not None:
            raise wrong_after(step.name, step.start, result.numel(), leaf)
