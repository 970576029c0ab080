"""What becomes of blocks of tensors in memory: checked, decoded on the device that holds them, and checked again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch

from maskreg.errors import AlreadyAppliedError, WrongCheckpointError
from maskreg.live.memory import leaves_of
from maskreg.parallel import Buffers
from maskreg.tensors.bus import on_device, up
from maskreg.tensors.leaves import first_difference, wrong_after, wrong_before
from maskreg.update.delta import SpanDelta
from maskreg.update.route import Route, SpanRoute

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes


class Blocks:
    """Turns blocks at hand into blocks of the result. Safe to call from several threads."""

    def __init__(self, route: Route, *, write: bool, most: int) -> None:
        """Prepare for calls with at most so many blocks.

        Args:
            route: what becomes of the model.
            write: the second pass, in which the result was checked before and is written.
            most: blocks of a call.
        """
        self._route = route
        self._codecs = [delta.codec for delta in route.deltas]
        self._write = write
        self._buffers = [Buffers() for _ in range(most)]

    def __call__(self, spans: Sequence[SpanRoute], at_hand: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results, on the device of the blocks; in memory that the thread's next call uses again.

        Args:
            spans: blocks of one tensor or several.
            at_hand: integers of the elements' width, one-dimensional and contiguous, on one device.
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
        error = wrong_before(span.name, span.start, span.stop - span.start, leaf)
        error.hint = self._route.hint
        raise error


def _check_results(steps: Sequence[SpanDelta], values: Sequence[torch.Tensor]) -> None:
    changed = [(step, result) for step, result in zip(steps, values, strict=True) if step.coded or step.stored]
    for (step, result), hashes in zip(changed, leaves_of([result for _, result in changed]), strict=True):
        leaf = first_difference(hashes, step.leaves)
        if leaf is not None:
            raise wrong_after(step.name, step.start, result.numel(), leaf)
