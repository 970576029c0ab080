"""Baselines that are drawn at random: how many coordinates of each class, then which ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import xxhash

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.digest import short_key
from maskreg.errors import UsageError
from maskreg.flow.baseline.sweeping import Choices, MaskedSpan, Sweeper
from maskreg.mask.baseline import STARTS, BaselineSpec, ClassBy, Drawn, mask_itself, quota_of_model, quota_of_tensor
from maskreg.mask.draw import Draw, Quota, Seen, Tally
from maskreg.mask.rounding import CLASSES, classes_of, off_grid
from maskreg.mask.scan import count
from maskreg.words import counted, listed

Bits = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]

_WHOLE = ""
"""Stands for the whole model where quotas are given by tensor name."""


class DrawnChooser:
    """Chooses by a threshold on random words, found from counts.

    Which words depends on the seed, the kind, the source's root and, for every tensor, its name and the bits of its
    mask, hashed in one sweep: not on how the mask is packaged. Every coordinate has a random word. To draw exactly 3 of
    these 8, the 3 smallest words are needed; sorting all words of a model would not fit in memory. But counts suffice::

        words            .71 .12 .35 .90 .08 .44 .27 .63
        expected border  3/8 = .375, give or take chance: the window .30 .. .45
        sweep 1          count words below .30: 3 (.12 .08 .27); keep those inside: .35 .44
        settle           3 are below already, so nothing of the window is drawn: the border is .30
        sweep 2          every block is recomputed from its words and the border, and stored

    Were 2 below, the smallest of the kept words would complete the number; were 4 below, or too few even with all kept
    ones, the window missed the border, and the tensor is swept again with a wider one. Where chances differ by class
    (their chance to flip under rounding), so do the windows, and the sweep that hashes the mask counts the classes.
    """

    def __init__(self, artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper) -> None:
        """Check that there is such a baseline of this mask."""
        self.sweeps = 3
        self._artifact = artifact
        self._spec = spec
        self._sweeper = sweeper
        self._settled: Choices = {}
        self._unchanged: dict[str, list[str]] = {}
        self._any_drawn = False
        self._seed = short_key(f"{spec.seed} {spec.kind.name} {artifact.manifest.source.root}")
        self._keys: dict[str, int] = {}
        self._hashing = xxhash.xxh3_64()
        if spec.kind.name in STARTS:
            self._check_some_drawn()

    @property
    def notes(self) -> tuple[str, ...]:
        """Tensors whose mask was taken over unchanged, and why, one sentence each."""
        return tuple(
            f"{counted(len(names), 'tensor', 'is')} taken unchanged from the mask, for {why}: {listed(names)}"
            for why, names in self._unchanged.items()
        )

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Draw from the whole model, for kinds that do."""
        if self._spec.kind.whole:
            present = [row for row in rows if row.numel]
            totals = self._artifact.manifest.totals
            quota = quota_of_model(self._spec, totals.numel, totals.nnz)
            self._hash(present)
            self._settled = self._draw(present, {_WHOLE: quota})

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The choices for some tensors, by name; each of them has coordinates."""
        return self._settled if self._spec.kind.whole else self._draw_tensors(rows)

    def end(self) -> None:
        """Check that something was drawn, now that all tensors are done."""
        if self._unchanged and not self._any_drawn:
            self._refuse(self._unchanged)

    def _check_some_drawn(self) -> None:
        reasons: dict[str, list[str]] = {}
        for row in self._artifact.tensors:
            if row.numel:
                reasons.setdefault(self._why_unchanged(row), []).append(row.name)
        if "" not in reasons:
            self._refuse(reasons or {"there are no coordinates": []})

    def _refuse(self, reasons: Mapping[str, Sequence[str]]) -> NoReturn:
        listing = "; ".join(f"{why}: {listed(names)}" if len(reasons) > 1 else why for why, names in reasons.items())
        raise UsageError(
            f"there is no rounding null of this mask, for {listing}",
            hint="extract from the bf16 checkpoint that training started from; or use off-grid-null"
            if self._spec.kind.name == "rounding-null"
            else "use another kind",
        )

    def _draw_tensors(self, rows: Sequence[Tensor]) -> Choices:
        if self._spec.kind.class_by is ClassBy.NOTHING:
            self._hash(rows)
            return self._draw(rows, {r.name: Quota.by_class(np.array([r.numel]), np.array([r.nnz])) for r in rows})
        quotas: dict[str, Quota] = {}
        choices: Choices = {}
        for row, (members, moved) in self._class_counts(rows):
            quota = self._quota(row, members, moved)
            if isinstance(quota, str):
                choices[row.name] = mask_itself
                self._unchanged.setdefault(quota, []).append(row.name)
            else:
                quotas[row.name] = quota
                self._any_drawn = True
        return {**choices, **self._draw([row for row in rows if row.name in quotas], quotas)}

    def _quota(self, row: Tensor, members: Counts, moved: Counts) -> Quota | str:
        return self._why_unchanged(row) or quota_of_tensor(self._spec, members, moved)

    def _why_unchanged(self, row: Tensor) -> str:
        """Why a tensor has no such null, as far as its row tells; empty if none is known."""
        if self._spec.kind.name not in STARTS:
            return ""
        if row.nnz in (0, row.numel):
            return "everything moved" if row.nnz else "nothing moved"
        # Which dtype the source has does not matter to weights that lie anywhere in their rounding cells.
        grid = self._spec.kind.name == "rounding-null" and row.source_dtype != "BF16"
        return off_grid(row.source_dtype) if grid else ""

    def _class_counts(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, tuple[Counts, Counts]]]:
        """Coordinates of every class, and how many the mask has; hashes the masks."""

        def work(span: MaskedSpan) -> tuple[Bits, Counts, Counts]:
            assert span.codes is not None and span.packed is not None
            members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
            count(classes_of(span.codes), span.packed, members, moved)
            return span.packed, members, moved

        members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
        for span, (packed, *counts) in self._sweeper.sweep(rows, work, mask=True, check=True):
            self._update(span, packed)
            members, moved = members + counts[0], moved + counts[1]
            if span.stop == span.row.numel:
                yield span.row, (members, moved)
                members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)

    def _hash(self, rows: Sequence[Tensor]) -> None:
        """Hash the masks of some tensors, for kinds that need no counts."""
        for span, packed in self._sweeper.sweep(rows, lambda span: span.packed, mask=True):
            assert packed is not None
            self._update(span, packed)

    def _update(self, span: MaskedSpan, packed: Bits) -> None:
        """Hash the bits of the next span; spans of a tensor come in order."""
        if span.start == 0:
            self._hashing = xxhash.xxh3_64(span.row.name.encode() + b"\0")
        self._hashing.update(packed.data)
        if span.stop == span.row.numel:
            self._keys[span.row.name] = self._hashing.intdigest()

    def _draw(self, rows: Sequence[Tensor], quotas: Mapping[str, Quota]) -> Choices:
        """Fill quotas by tensor name; rows whose window missed the border are swept again."""
        choices: Choices = {}
        waiting, widened = list(rows), 0
        while waiting:
            draws = {name: quota.draw(self._seed, widened) for name, quota in quotas.items()}
            settled = self._sweep_once(waiting, quotas, draws)
            choices |= settled
            waiting, widened = [row for row in waiting if row.name not in settled], widened + 1
        return choices

    def _sweep_once(self, rows: Sequence[Tensor], quotas: Mapping[str, Quota], draws: Mapping[str, Draw]) -> Choices:
        by, keys, whole = self._spec.kind.class_by, self._keys, self._spec.kind.whole

        def group(row: Tensor) -> str:
            return _WHOLE if whole else row.name

        def work(span: MaskedSpan) -> Seen:
            classes = by.classes(span.codes, span.packed, span.numel)
            return draws[group(span.row)].look(keys[span.row.name], span.start, span.numel, classes)

        choices: Choices = {}
        tally: Tally | None = None
        for span, seen in self._sweeper.sweep(rows, work, mask=by is ClassBy.MEMBERSHIP):
            name = group(span.row)
            tally = tally or Tally(quotas[name], draws[name])
            tally.add(seen)
            done = [span.row] if name != _WHOLE else list(rows) if span.row.name == rows[-1].name else []
            if done and span.stop == span.row.numel:
                settled = tally.settle()
                tally = None
                for row in done if settled is not None else ():
                    key = self._keys[row.name]
                    choices[row.name] = Drawn(draws[name], key, (settled or {}).get(key, np.empty(0, np.int64)), by)
        return choices
