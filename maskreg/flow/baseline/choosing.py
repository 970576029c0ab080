"""Settling which coordinates belong to a baseline: what has to be known of tensors before a block of it can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.digest import short_key
from maskreg.errors import UsageError
from maskreg.flow.baseline.sweeping import MaskedSpan, Sweeper
from maskreg.mask import pack_runs, unpack
from maskreg.mask.baseline import (
    BaselineSpec,
    Choice,
    ClassBy,
    Drawn,
    Kept,
    Safe,
    Small,
    complement,
    mask_itself,
    quota_of_model,
    quota_of_tensor,
)
from maskreg.mask.draw import Draw, Quota, Seen, Tally
from maskreg.mask.principal import default_rank, matrices_of, principal
from maskreg.mask.ranking import MAGNITUDES, Smallest, count_magnitudes, places_of, smallest
from maskreg.mask.rounding import CLASSES, classes_of, off_grid
from maskreg.mask.scan import count
from maskreg.tensors.cast import to_fp32
from maskreg.words import counted, listed

Counts = npt.NDArray[np.int64]
Choices = dict[str, Choice]

_WHOLE = ""
"""What stands for the whole model where a quota is given by tensor name."""


class Chooser:
    """Makes the choices of one baseline, batch after batch of tensors.

    Attributes:
        sweeps: how often every tensor is gone over, storing included.
    """

    def __init__(self, artifact: Artifact, spec: BaselineSpec, sweeper: Sweeper) -> None:
        """Check that there is such a baseline of this mask.

        Raises:
            UsageError: there is none, and why.
        """
        self._artifact = artifact
        self._spec = spec
        self._sweeper = sweeper
        self._settled: Choices = {}
        self._as_they_are: dict[str, list[str]] = {}
        self._drawn = False
        self._seed = short_key(f"{spec.seed} {spec.kind.name} {artifact.digest}")
        name = spec.kind.name
        self._make: Callable[[Sequence[Tensor]], Choices] = {
            "low-magnitude": self._low,
            "principal": self._principal,
            "safe": self._safe,
            "complement": lambda rows: {row.name: complement for row in rows},
        }.get(name, self._draw_tensors)
        self.sweeps = {"complement": 1, "principal": 2, "low-magnitude": 3, "safe": 3}.get(
            name, 3 if spec.kind.class_by is ClassBy.CODE else 2
        )
        if name == "rounding-null":
            self._check_grid()

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of the choices made so far, one sentence each."""
        return tuple(
            f"{counted(len(names), 'tensor', 'is')} taken as in the mask, for {why}: {listed(names)}"
            for why, names in self._as_they_are.items()
        )

    def begin(self, rows: Iterable[Tensor]) -> None:
        """Settle what concerns all tensors together.

        Raises:
            UsageError: a subset would be larger than the mask.
        """
        if self._spec.kind.whole:
            present = [row for row in rows if row.numel]
            totals = self._artifact.manifest.totals
            quota = quota_of_model(self._spec, totals.numel, totals.nnz)
            self._settled = self._draw(present, {_WHOLE: quota})

    def choose(self, rows: Sequence[Tensor]) -> Choices:
        """The choices for some tensors, by name; each of them has coordinates."""
        return self._settled if self._spec.kind.whole else self._make(rows)

    def end(self) -> None:
        """Make sure that something was chosen, now that all tensors were.

        Raises:
            UsageError: every tensor was taken as it is in the mask.
        """
        if self._as_they_are and not self._drawn:
            self._refuse(self._as_they_are)

    def _check_grid(self) -> None:
        reasons: dict[str, list[str]] = {}
        for row in self._artifact.tensors:
            if row.numel:
                reasons.setdefault(_why_as_it_is(row), []).append(row.name)
        if "" not in reasons:
            self._refuse(reasons or {"there are no coordinates": []})

    def _refuse(self, reasons: Mapping[str, Sequence[str]]) -> NoReturn:
        told = "; ".join(f"{why}: {listed(names)}" if len(reasons) > 1 else why for why, names in reasons.items())
        raise UsageError(
            f"there is no rounding null of this mask, for {told}",
            hint="extract from the bf16 checkpoint that training started from; or use exponent-matched",
        )

    # Drawn ones

    def _draw_tensors(self, rows: Sequence[Tensor]) -> Choices:
        if self._spec.kind.class_by is ClassBy.NOTHING:
            return self._draw(rows, {r.name: Quota.of_all(np.array([r.numel]), np.ones(1), r.nnz) for r in rows})
        quotas: dict[str, Quota] = {}
        choices: Choices = {}
        for row, (members, moved) in self._counted(rows):
            quota = self._quota(row, members, moved)
            if isinstance(quota, str):
                choices[row.name] = mask_itself
                self._as_they_are.setdefault(quota, []).append(row.name)
            else:
                quotas[row.name] = quota
                self._drawn = True
        return {**choices, **self._draw([row for row in rows if row.name in quotas], quotas)}

    def _quota(self, row: Tensor, members: Counts, moved: Counts) -> Quota | str:
        why = _why_as_it_is(row) if self._spec.kind.name == "rounding-null" else ""
        return why or quota_of_tensor(self._spec, members, moved)

    def _counted(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, tuple[Counts, Counts]]]:
        def work(span: MaskedSpan) -> tuple[Counts, Counts]:
            assert span.codes is not None and span.packed is not None
            members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
            count(classes_of(span.codes), span.packed, members, moved)
            return members, moved

        members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
        for span, counts in self._sweeper.sweep(rows, work, mask=True, check=True):
            members, moved = members + counts[0], moved + counts[1]
            if span.stop == span.row.numel:
                yield span.row, (members, moved)
                members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)

    def _draw(self, rows: Sequence[Tensor], quotas: Mapping[str, Quota]) -> Choices:
        choices: Choices = {}
        waiting, widened = list(rows), 0
        while waiting:
            draws = {name: quota.draw(self._seed, widened) for name, quota in quotas.items()}
            found = self._looked(waiting, quotas, draws)
            choices |= found
            waiting, widened = [row for row in waiting if row.name not in found], widened + 1
        return choices

    def _looked(self, rows: Sequence[Tensor], quotas: Mapping[str, Quota], draws: Mapping[str, Draw]) -> Choices:
        by = self._spec.kind.class_by

        def group(row: Tensor) -> str:
            return _WHOLE if self._spec.kind.whole else row.name

        def work(span: MaskedSpan) -> Seen:
            classes = by.classes(span.codes, span.packed, span.numel)
            return draws[group(span.row)].look(short_key(span.row.name), span.start, span.numel, classes)

        choices: Choices = {}
        tally: Tally | None = None
        for span, seen in self._sweeper.sweep(rows, work, mask=by is ClassBy.MEMBERSHIP):
            name = group(span.row)
            tally = tally or Tally(quotas[name], draws[name])
            tally.add(seen)
            done = [span.row] if name != _WHOLE else list(rows) if span.row is rows[-1] else []
            if done and span.stop == span.row.numel:
                settled = tally.settle()
                tally = None
                for row in done if settled is not None else ():
                    key = short_key(row.name)
                    choices[row.name] = Drawn(draws[name], key, (settled or {}).get(key, np.empty(0, np.int64)), by)
        return choices

    # Ranked ones

    def _low(self, rows: Sequence[Tensor]) -> Choices:
        return {name: Small(which) for name, which in self._smallest(rows, lambda row: row.nnz).items()}

    def _smallest(self, rows: Sequence[Tensor], wanted: Callable[[Tensor], int]) -> dict[str, Smallest]:
        def work(span: MaskedSpan) -> Counts:
            assert span.codes is not None
            counts = np.zeros(MAGNITUDES, np.int64)
            count_magnitudes(span.codes, counts)
            return counts

        found: dict[str, Smallest] = {}
        counts = np.zeros(MAGNITUDES, np.int64)
        for span, more in self._sweeper.sweep(rows, work, check=True):
            counts += more
            if span.stop == span.row.numel:
                found[span.row.name] = smallest(counts, wanted(span.row))
                counts = np.zeros(MAGNITUDES, np.int64)
        return self._cut([row for row in rows if found[row.name].ties], found)

    def _cut(self, rows: Sequence[Tensor], found: dict[str, Smallest]) -> dict[str, Smallest]:
        """Where the last tie is that is taken."""

        def work(span: MaskedSpan) -> Counts:
            assert span.codes is not None
            return places_of(span.codes, found[span.row.name].border)

        left = {row.name: found[row.name].ties for row in rows}
        for span, places in self._sweeper.sweep(rows, work):
            name = span.row.name
            if 0 < left[name] <= places.size:
                found[name] = found[name]._replace(cut=span.start + int(places[left[name] - 1]) + 1)
            left[name] -= min(left[name], places.size)
        return found

    def _principal(self, rows: Sequence[Tensor]) -> Choices:
        # The matrices are read without a look at leaves.
        for _ in self._sweeper.sweep(rows, lambda span: None, check=True):
            pass
        return {row.name: self._kept(row, partial(self._in_slice, row)) for row in rows}

    def _safe(self, rows: Sequence[Tensor]) -> Choices:
        alpha = self._spec.alpha or 0.0
        small = self._smallest(rows, lambda row: _share(alpha, row.numel))
        return {
            row.name: Safe(self._kept(row, lambda start, stop: _share(alpha, stop - start)), Small(small[row.name]))
            for row in rows
        }

    def _kept(self, row: Tensor, wanted: Callable[[int, int], int]) -> Kept:
        source = self._sweeper.source
        assert source is not None
        number, shape = matrices_of(row.source_shape or ())
        size = shape[0] * shape[1]
        rank = self._spec.rank or default_rank(shape)

        def rows_of(first: int, start: int, stop: int) -> npt.NDArray[np.float32]:
            begin, end = first + start * shape[1], first + stop * shape[1]
            codes = source.codes(row.name, begin, end, checked=False)
            numbers: npt.NDArray[np.float32] = to_fp32(codes).reshape(stop - start, shape[1])
            return numbers

        def runs() -> Iterator[npt.NDArray[np.bool_]]:
            for first in range(0, number * size, size):
                yield from principal(partial(rows_of, first), shape, rank, wanted(first, first + size))

        return Kept(pack_runs(runs()))

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


def _why_as_it_is(row: Tensor) -> str:
    """Why there is no rounding null of a tensor, as far as its row tells."""
    if row.nnz == 0:
        return "nothing moved"
    if row.nnz == row.numel:
        return "everything moved"
    return off_grid(row.source_dtype) if row.source_dtype != "BF16" else ""
