"""How baselines choose coordinates: at random, by rank, or as the complement, in passes over masked tensors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.digest import short_key
from maskreg.errors import UsageError
from maskreg.flow.storing import MaskedSpan
from maskreg.mask import pack_spans, unpack
from maskreg.mask.baseline import (
    STARTS,
    BaselineSpec,
    Choice,
    ClassBy,
    complement,
    drawn,
    kept,
    mask_itself,
    quota_of_model,
    quota_of_tensor,
    safe,
    small,
)
from maskreg.mask.draw import Draw, Quota, Seen, Tally, count
from maskreg.mask.ranking import (
    MAGNITUDES,
    Smallest,
    count_magnitudes,
    default_rank,
    matrices_of,
    places_of,
    principal,
    smallest,
)
from maskreg.mask.rounding import CLASSES, classes_of, off_grid
from maskreg.parallel import ordered
from maskreg.progress import Progress
from maskreg.tensors.cast import to_fp32
from maskreg.tensors.info import blocks_of, numel_of
from maskreg.update.verified import VerifiedSource
from maskreg.words import counted, listed

Bits = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]

ResultT = TypeVar("ResultT")

Choices = dict[str, Choice]
"""By tensor name, what gives the bits of any span of it."""


@dataclass(frozen=True)
class Sweeper:
    """Passes over masked tensors: spans go to workers, and their results come back in order."""

    artifact: Artifact
    source: VerifiedSource | None
    progress: Progress
    jobs: int

    def sweep(
        self, rows: Iterable[Tensor], work: Callable[[MaskedSpan], ResultT], *, mask: bool = False, check: bool = False
    ) -> Generator[tuple[MaskedSpan, ResultT], None, None]:
        """Call ``work`` on every span of ``rows``, on several threads, and yield span and result in order.

        A tensor without coordinates has one empty span. With ``mask``, spans carry its bits; with ``check``, every leaf
        of the source is compared.
        """

        def task(span: MaskedSpan) -> tuple[MaskedSpan, ResultT]:
            if self.source is not None and span.stop:
                codes = self.source.codes(span.row.name, span.start, span.stop, checked=check)
                span = span._replace(codes=codes)
            return span._replace(packed=None, codes=None), work(span)

        spans = self._spans(rows, mask)
        if self.source is not None:
            spans = self.source.ahead(spans, lambda span: (span.row.name, span.start, span.stop))
        with closing(ordered(task, spans, jobs=self.jobs, size=numel_of)) as results:
            for span, result in results:
                yield span, result
                self.progress.advance(2 * span.numel)

    def chosen(
        self, rows: Sequence[Tensor], choices: Mapping[str, Choice]
    ) -> Generator[tuple[MaskedSpan, Bits], None, None]:
        """Packed bits of every span of ``rows``, as ``choices`` has them by tensor name."""

        def work(span: MaskedSpan) -> Bits:
            if not span.stop:
                return np.empty(0, np.uint8)
            return choices[span.row.name](span.start, span.numel, span.codes, span.packed)

        return self.sweep(rows, work, mask=True)

    def _spans(self, rows: Iterable[Tensor], mask: bool) -> Iterator[MaskedSpan]:
        for row in rows:
            for start, stop in blocks_of(row.numel) if row.numel else ((0, 0),):
                packed = self.artifact.mask_bits(row, start, stop) if mask else None
                yield MaskedSpan(row, start, stop, packed)


class Chooser:
    """Makes the choices of one baseline, batch after batch of tensors; this one, what the mask has not.

    ``sweeps`` is how often every tensor is swept, storing included.
    """

    def __init__(self, artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper, *, sweeps: int = 1) -> None:
        self.sweeps = sweeps
        self._artifact, self._spec, self._sweeper = artifact, spec, sweeper

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the choices made so far, one sentence each."""
        return ()

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Choose what depends on all tensors together."""

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The choices for some tensors, by name; each of them has coordinates."""
        return {row.name: complement for row in rows}

    def end(self) -> None:
        """Check the choices, now that all tensors are done."""


def chooser_for(artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper) -> Chooser:
    """The chooser of a kind of baseline."""
    if spec.kind.name == "complement":
        return Chooser(artifact, spec, sweeper)
    if spec.kind.name in ("low-magnitude", "principal", "safe"):
        return _Ranking(artifact, spec, sweeper, sweeps=2 if spec.kind.name == "principal" else 3)
    return _Drawing(artifact, spec, sweeper)


_WHOLE = ""
"""Stands for the whole model where quotas are given by tensor name."""


class _Drawing(Chooser):
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
        super().__init__(artifact, spec, sweeper, sweeps=3)
        self._settled: Choices = {}
        self._unchanged: dict[str, list[str]] = {}
        self._any_drawn = False
        self._seed = short_key(f"{spec.seed} {spec.kind.name} {artifact.manifest.source.root}")
        self._keys: dict[str, int] = {}
        self._hashing = xxhash.xxh3_64()
        if spec.kind.name in STARTS:
            reasons: dict[str, list[str]] = {}
            for row in self._artifact.tensors:
                if row.numel:
                    reasons.setdefault(self._why_unchanged(row), []).append(row.name)
            if "" not in reasons:
                self._refuse(reasons or {"there are no coordinates": []})

    @property
    def notes(self) -> tuple[str, ...]:
        """Tensors whose mask was taken over unchanged, and why, one sentence each."""
        return tuple(
            f"{counted(len(names), 'tensor', 'is')} taken unchanged from the mask, for {why}: {listed(names)}"
            for why, names in self._unchanged.items()
        )

    def begin(self, rows: Iterable[Tensor]) -> None:
        if self._spec.kind.whole:
            present = [row for row in rows if row.numel]
            totals = self._artifact.manifest.totals
            quota = quota_of_model(self._spec, totals.numel, totals.nnz)
            self._hash(present)
            self._settled = self._draw(present, {_WHOLE: quota})

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        return self._settled if self._spec.kind.whole else self._draw_tensors(rows)

    def end(self) -> None:
        if self._unchanged and not self._any_drawn:
            self._refuse(self._unchanged)

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
            quota = self._why_unchanged(row) or quota_of_tensor(self._spec, members, moved)
            if isinstance(quota, str):
                choices[row.name] = mask_itself
                self._unchanged.setdefault(quota, []).append(row.name)
            else:
                quotas[row.name] = quota
                self._any_drawn = True
        return {**choices, **self._draw([row for row in rows if row.name in quotas], quotas)}

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
                    choices[row.name] = drawn(draws[name], key, (settled or {}).get(key, np.empty(0, np.int64)), by)
        return choices


class _Ranking(Chooser):
    """Chooses by rank: ``low-magnitude``, ``principal`` or ``safe``.

    The smallest weights need no sort either: bf16 has only 2^15 magnitudes, so a histogram finds the threshold. To take
    3 of these 6 magnitudes::

        magnitudes  5 2 9 2 7 2
        sweep 1     histogram: three 2s, one 5, one 7, one 9; the threshold is 2, and all three ties are taken
        sweep 2     only where ties are cut (3 of four 2s, say): where the last one taken lies
    """

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        if self._spec.kind.name == "principal":
            # Checks the leaves once; the matrices are read unchecked below.
            for _ in self._sweeper.sweep(rows, lambda span: None, check=True):
                pass
            return {row.name: self._kept(row, partial(self._in_slice, row)) for row in rows}
        return self._safe(rows) if self._spec.kind.name == "safe" else self._low(rows)

    def _low(self, rows: Sequence[Tensor]) -> Choices:
        return {name: small(which) for name, which in self._smallest(rows, lambda row: row.nnz).items()}

    def _smallest(self, rows: Sequence[Tensor], number: Callable[[Tensor], int]) -> dict[str, Smallest]:
        def work(span: MaskedSpan) -> Counts:
            assert span.codes is not None
            counts = np.zeros(MAGNITUDES, np.int64)
            count_magnitudes(span.codes, counts)
            return counts

        chosen: dict[str, Smallest] = {}
        counts = np.zeros(MAGNITUDES, np.int64)
        for span, more in self._sweeper.sweep(rows, work, check=True):
            counts += more
            if span.stop == span.row.numel:
                chosen[span.row.name] = smallest(counts, number(span.row))
                counts = np.zeros(MAGNITUDES, np.int64)
        return self._cut([row for row in rows if chosen[row.name].ties], chosen)

    def _cut(self, rows: Sequence[Tensor], chosen: dict[str, Smallest]) -> dict[str, Smallest]:
        """Find where the last tie that is taken lies."""

        def work(span: MaskedSpan) -> Counts:
            assert span.codes is not None
            return places_of(span.codes, chosen[span.row.name].border)

        left = {row.name: chosen[row.name].ties for row in rows}
        for span, places in self._sweeper.sweep(rows, work):
            name = span.row.name
            if 0 < left[name] <= places.size:
                chosen[name] = chosen[name]._replace(cut=span.start + int(places[left[name] - 1]) + 1)
            left[name] -= min(left[name], places.size)
        return chosen

    def _safe(self, rows: Sequence[Tensor]) -> Choices:
        alpha = self._spec.alpha or 0.0
        low = self._smallest(rows, lambda row: _share(alpha, row.numel))
        return {
            row.name: safe(self._kept(row, lambda start, stop: _share(alpha, stop - start)), small(low[row.name]))
            for row in rows
        }

    def _kept(self, row: Tensor, number_of: Callable[[int, int], int]) -> Choice:
        source = self._sweeper.source
        assert source is not None
        stacked, shape = matrices_of(row.source_shape or ())
        size = shape[0] * shape[1]
        rank = self._spec.rank or default_rank(shape)

        def rows_of(first: int, start: int, stop: int) -> npt.NDArray[np.float32]:
            begin, end = first + start * shape[1], first + stop * shape[1]
            codes = source.codes(row.name, begin, end, checked=False)
            numbers: npt.NDArray[np.float32] = to_fp32(codes).reshape(stop - start, shape[1])
            return numbers

        def chosen_rows() -> Iterator[npt.NDArray[np.bool_]]:
            for first in range(0, stacked * size, size):
                yield from principal(partial(rows_of, first), shape, rank, number_of(first, first + size))

        return kept(pack_spans(chosen_rows()))

    def _in_slice(self, row: Tensor, start: int, stop: int) -> int:
        """Coordinates of the mask within ``[start, stop)``."""
        if (start, stop) == (0, row.numel):
            return row.nnz
        first = start // 64 * 64
        moved = unpack(self._artifact.mask_bits(row, first, stop), stop - first)
        return int(np.count_nonzero(moved[start - first :]))


def _share(alpha: float, numel: int) -> int:
    # Rounded up, as the published code does.
    return min(numel, int(np.ceil(alpha * numel)))
