"""The state of an optimizer, weight by weight, beside the update that it has made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

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
    widths = {part: math.prod(state.shape(part.tensor)[1:]) for part in parts}
    spans = {part: (part.start * width, part.stop * width) for part, width in widths.items()}
    reader = None
    if artifact is not None and source is not None:
        reader = UpdateReader(artifact, source, None, HostDevice())
    progress.start("measure moments", sum(stop - start for start, stop in spans.values()) * _ITEM_BYTES)
    weights: dict[str, MomentSums] = {}
    unpaired: list[str] = []

    def row_of(name: str) -> Tensor | None:
        """The tensor of the update that a weight is; None without one of its shape."""
        row = None if reader is None else reader.by_name.get(name)
        return row if row is not None and (row.source_shape or ()) == state.shape(name) else None

    def work(task: tuple[Part, tuple[int, int]]) -> MomentSums:
        part, span = task
        row = row_of(part.tensor)
        update = None if reader is None or row is None else reader.read(row)
        return _sums(state, part.tensor, span, update)

    with closing(ordered(work, spans.items(), jobs=1, in_flight=1)) as results:
        for (part, (first, last)), sums in zip(spans.items(), results, strict=True):
            if reader is not None and row_of(part.tensor) is None:
                unpaired.append(part.tensor)
            weights[part.name] = sums
            progress.advance((last - first) * _ITEM_BYTES)
    return _document(state, weights, unpaired, selection)


def _sums(state: Moments, name: str, span: tuple[int, int], update: TensorUpdate | None) -> MomentSums:
    total = MomentSums()
    for begin, end in blocks_of(span[1] - span[0]):
        start, stop = span[0] + begin, span[0] + end
        first, gradient = (
            state.read(name, kind, start, stop) if state.has(name, kind) else None for kind in (FIRST, GRADIENT)
        )
        difference = None if update is None else update.difference(start, stop)
        total += MomentSums.of(state.read(name, SECOND, start, stop), first, gradient, difference)
    return total


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
