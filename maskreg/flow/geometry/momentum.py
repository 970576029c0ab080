"""The state of an optimizer, weight by weight, beside the update that it has made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.analysis.moments import MomentSums, summarized
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint import layer_of, role_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.moments import FIRST, GRADIENT, SECOND, Moments
from maskreg.checkpoint.roles import ALL, Part, Selection
from maskreg.device import HostDevice
from maskreg.engine import ordered
from maskreg.flow.geometry.reading import TensorUpdate, UpdateReader
from maskreg.progress import SILENT, Progress
from maskreg.tensors.cast import to_float
from maskreg.tensors.info import blocks_of
from maskreg.words import counted, listed

_ITEM_BYTES = 4


def measure_moments(
    state: Moments,
    artifact: Artifact | None = None,
    source: Checkpoint | None = None,
    *,
    selection: Selection = ALL,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Measure the spread of second moments, and how first moments point to gradient and update.

    A worker has one weight in memory at a time where there is an update, else one block.
    """
    parts = selection.parts({name: state.shape(name) for name in state.names})
    spans = {part: _span(part, state.shape(part.tensor)) for part in parts}
    reader = None
    if artifact is not None and source is not None:
        reader = UpdateReader(artifact, source, None, HostDevice())
    progress.start("measure moments", sum(stop - start for start, stop in spans.values()) * _ITEM_BYTES)
    weights: dict[str, MomentSums] = {}
    unpaired: list[str] = []
    work = _Summing(state, reader)
    with closing(ordered(work, spans.items(), jobs=1, in_flight=1)) as results:
        for (part, (first, last)), sums in zip(spans.items(), results, strict=True):
            if reader is not None and work.row(part.tensor) is None:
                unpaired.append(part.tensor)
            weights[part.name] = sums
            progress.advance((last - first) * _ITEM_BYTES)
    return _document(state, weights, unpaired, selection)


@dataclass(frozen=True)
class _Summing:
    """Adds up the elements of a weight, beside its update where there is one."""

    state: Moments
    reader: UpdateReader | None

    def __call__(self, task: tuple[Part, tuple[int, int]]) -> MomentSums:
        part, span = task
        row = self.row(part.tensor)
        update = None if self.reader is None or row is None else self.reader.read(row)
        return _sums(self.state, part.tensor, span, update)

    def row(self, name: str) -> Tensor | None:
        """The tensor of the update that a weight is; None without one of its shape."""
        row = None if self.reader is None else self.reader.by_name.get(name)
        return row if row is not None and (row.source_shape or ()) == self.state.shape(name) else None


def _span(part: Part, shape: tuple[int, ...]) -> tuple[int, int]:
    width = math.prod(shape[1:])
    return part.start * width, part.stop * width


def _sums(state: Moments, name: str, span: tuple[int, int], update: TensorUpdate | None) -> MomentSums:
    total = MomentSums()
    for begin, end in blocks_of(span[1] - span[0]):
        start, stop = span[0] + begin, span[0] + end
        first, gradient = (
            state.read(name, kind, start, stop) if state.has(name, kind) else None for kind in (FIRST, GRADIENT)
        )
        difference = None if update is None else _difference(update, start, stop)
        total += MomentSums.of(state.read(name, SECOND, start, stop), first, gradient, difference)
    return total


def _difference(update: TensorUpdate, start: int, stop: int) -> npt.NDArray[np.float64]:
    sides = ((update.before, update.before_dtype), (update.after, update.after_dtype))
    before, after = (to_float(bits.reshape(-1)[start:stop], dtype) for bits, dtype in sides)
    return np.asarray(after - before)


def _document(
    state: Moments, weights: Mapping[str, MomentSums], unpaired: Sequence[str], selection: Selection
) -> dict[str, Any]:
    groups: dict[str, dict[str, list[MomentSums]]] = {"roles": {}, "layers": {}}
    for name, sums in weights.items():
        for kind, label in (("roles", "" if name.isdigit() else role_of(name)), ("layers", layer_of(name))):
            if label:
                groups[kind].setdefault(label, []).append(sums)
    return {
        "state": str(state.checkpoint.path),
        "selection": selection.to_json(),
        "total": summarized(list(weights.values())),
        **{kind: {label: summarized(rows) for label, rows in group.items()} for kind, group in groups.items()},
        "tensors": {name: {"numel": sums.numel, **sums.figures()} for name, sums in weights.items()},
        "notes": list(_notes(state, weights, unpaired)),
    }


def _notes(state: Moments, weights: Mapping[str, MomentSums], unpaired: Sequence[str]) -> list[str]:
    notes = []
    numbered = [name for name in weights if name.isdigit()]
    if numbered:
        notes.append(
            f"the optimizer numbered {counted(len(numbered), 'weight')} instead of naming them: no roles, layers or "
            "update of theirs can be told"
        )
    if not any(state.has(name, GRADIENT) for name in weights):
        notes.append("no gradient was saved, so the alignment of moment and gradient is not known")
    named = [name for name in unpaired if not name.isdigit()]
    if named:
        notes.append(f"not among the compared tensors of the update, or of another shape: {listed(named, 3)}")
    return notes
