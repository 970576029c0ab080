"""Deltas one after another: from source to target, back, along a chain, or from one target to another over the source.

Deltas code the same blocks of a tensor, so a block goes the whole way on its own, and no checkpoint in between exists::

    chain, block 7 of a tensor      source --delta of A--> target of A --delta of B--> target of B
    switch                          target of A --reverse of A--> source --delta of B--> target of B
                                    leaves checked at every station
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from maskreg.artifact.reader import Artifact
from maskreg.digest import LeafHashes
from maskreg.errors import CorruptError, PairMismatchError, UsageError
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.leaves import leaves_between
from maskreg.update.delta import Change, Delta, SpanDelta, TensorDelta
from maskreg.update.verified import RecordedSide


class SpanRoute(NamedTuple):
    """What each delta does to one block of a tensor.

    ``stations`` are uint8 ``[k, 16]`` each: hashes at hand, after each step, and of the result.
    """

    stations: tuple[LeafHashes, ...]
    steps: tuple[SpanDelta, ...]

    @property
    def name(self) -> str:
        """Of the tensor."""
        return self.steps[0].name

    @property
    def start(self) -> int:
        """First element."""
        return self.steps[0].start

    @property
    def stop(self) -> int:
        """One past the last element."""
        return self.steps[0].stop


@dataclass(frozen=True, eq=False)
class TensorRoute:
    """What each delta does to one tensor, by one of its names."""

    steps: tuple[TensorDelta, ...]

    @property
    def name(self) -> str:
        """In the checkpoint at hand and in the result."""
        return self.steps[0].name

    @property
    def before(self) -> TensorInfo | None:
        """Its form at hand."""
        return self.steps[0].before

    @property
    def changes(self) -> bool:
        """Whether any step changes it."""
        return any(step.change is not Change.KEEP for step in self.steps)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of source and target of each delta; equal for two names of the same tensor."""
        rows = [step.row for step in self.steps]
        return tuple(each for row in rows for each in (row.source_fingerprint, row.target_fingerprint))

    def spans(self) -> Iterator[SpanRoute]:
        """What becomes of each block, in order; of the payload only leaves are read."""
        before = self.steps[0].recorded_before
        for steps in zip(*(step.spans() for step in self.steps), strict=True):
            first = steps[0]
            stations = [leaves_between(before, first.start, first.stop)]
            for number, step in enumerate(steps):
                if number and not np.array_equal(
                    stations[-1], leaves_between(self.steps[number].recorded_before, step.start, step.stop)
                ):
                    raise CorruptError(f"tensor {self.name}", "the artifacts record different leaves of one checkpoint")
                stations.append(step.leaves)
            yield SpanRoute(tuple(stations), steps)


class Route(dict[str, TensorRoute]):
    """What becomes of each tensor of a model, by name, in the order of the first artifact's tensor table.

    ``stations`` is what a model is before, between and after the deltas, for messages: ``the source``, ``the target``.
    """

    def __init__(self, deltas: Sequence[Delta]) -> None:
        """Check that each delta continues the one before."""
        self.deltas = tuple(deltas)
        self.stations = _stations(self.deltas)
        for left, right in pairwise(self.deltas):
            _require_continuing(left, right)
        for delta in self.deltas:
            _refuse_reshaping(delta)
        super().__init__((name, TensorRoute(tuple(delta[name] for delta in self.deltas))) for name in self.deltas[0])

    @property
    def hint(self) -> str:
        """Which checkpoint the first delta applies to."""
        return self.deltas[0].before.hint


def switching(before: Artifact, after: Artifact) -> list[Delta]:
    """The deltas from one target to another."""
    if before.digest == after.digest:
        raise UsageError(f"{before.digest.short} was given twice: there is nothing to switch to")
    return [Delta(before, revert=True), Delta(after)]


def _stations(deltas: Sequence[Delta]) -> tuple[str, ...]:
    of = [f" of {delta.artifact.digest.short}" if len(deltas) > 1 else "" for delta in deltas]
    first = f"the target{of[0]}" if deltas[0].revert else "the source"
    return (first, *("the source" if delta.revert else f"the target{of[i]}" for i, delta in enumerate(deltas)))


def _require_continuing(left: Delta, right: Delta) -> None:
    if left.after.side.root == right.before.side.root:
        return
    names = left.artifact.by_name.keys() | right.artifact.by_name.keys()
    differing = sorted(name for name in names if _form(left.after, name) != _form(right.before, name))
    first = f"; the first tensor that differs is {differing[0]}" if differing else ""
    raise PairMismatchError(
        f"{left.artifact.digest.short} gives other weights than {right.artifact.digest.short} applies to{first}",
        tuple(differing),
        hint="switch between artifacts of one source checkpoint; apply links of a chain in their order",
    )


def _form(side: RecordedSide, name: str) -> tuple[object, ...] | None:
    row = side.artifact.by_name.get(name)
    if row is None:
        return None
    print_of = row.source_fingerprint if side.name == "source" else row.target_fingerprint
    return side.tensors.get(name), print_of


def _refuse_reshaping(delta: Delta) -> None:
    for tensor in delta.values():
        if tensor.before != tensor.after:
            change = "removes" if tensor.after is None else "changes dtype or shape of"
            fault = f"{'adds' if tensor.before is None else change} tensor {tensor.name}"
            raise UsageError(
                f"artifact {delta.artifact.digest.short} {fault}, which is done neither in place nor within a chain",
                hint="apply it alone to its source on disk, which writes a new checkpoint",
            )
