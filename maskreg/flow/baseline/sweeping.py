"""Passes over masked tensors, block by block on threads, with the source's codes and the mask's bits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.engine import ordered
from maskreg.mask.baseline import Choice
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import blocks_of, numel_of
from maskreg.update.verified import VerifiedSource

ResultT = TypeVar("ResultT")

Choices = dict[str, Choice]
"""By tensor name, what gives the bits of any span of it."""


class MaskedSpan(NamedTuple):
    """Coordinates ``[start, stop)`` of a tensor, with the data that a worker gets.

    Attributes:
        row: the tensor.
        start, stop: its coordinates.
        packed: bits of the mask, if requested.
        codes: bf16 codes of the source, if there is one.
    """

    row: Tensor
    start: int
    stop: int
    packed: npt.NDArray[np.uint8] | None
    codes: npt.NDArray[np.uint16] | None

    @property
    def numel(self) -> int:
        """How many coordinates."""
        return self.stop - self.start


class Sweeper:
    """Passes over masked tensors: spans go to workers, and their results come back in order."""

    def __init__(self, artifact: Artifact, source: VerifiedSource | None, progress: Progress, jobs: int) -> None:
        """Remember where to read from."""
        self.source = source
        self._artifact = artifact
        self._progress = progress
        self._jobs = jobs

    def __reduce__(self) -> tuple[Any, ...]:
        # The caller, which hands out the spans, reports progress.
        return Sweeper, (self._artifact, self.source, SILENT, self._jobs)

    def sweep(
        self, rows: Iterable[Tensor], work: Callable[[MaskedSpan], ResultT], *, mask: bool = False, check: bool = False
    ) -> Generator[tuple[MaskedSpan, ResultT], None, None]:
        """Call ``work`` on every span of ``rows`` and yield span and result in order; the span's arrays are dropped.

        Args:
            rows: tensors; one without coordinates has one empty span.
            work: called on several threads.
            mask: spans carry the mask's bits.
            check: compare every leaf of the source.
        """

        def task(span: MaskedSpan) -> tuple[MaskedSpan, ResultT]:
            if self.source is not None and span.stop:
                codes = self.source.codes(span.row.name, span.start, span.stop, checked=check)
                span = span._replace(codes=codes)
            return span._replace(packed=None, codes=None), work(span)

        spans = self._spans(rows, mask)
        if self.source is not None:
            spans = self.source.ahead(spans, lambda span: (span.row.name, span.start, span.stop))
        with closing(ordered(task, spans, jobs=self._jobs, size=numel_of)) as results:
            for span, result in results:
                yield span, result
                self._progress.advance(2 * span.numel)

    def chosen(
        self, rows: Sequence[Tensor], choices: Mapping[str, Choice]
    ) -> Generator[tuple[MaskedSpan, npt.NDArray[np.uint8]], None, None]:
        """Packed bits of every span of ``rows``, as ``choices`` has them by tensor name."""

        def work(span: MaskedSpan) -> npt.NDArray[np.uint8]:
            if not span.stop:
                return np.empty(0, np.uint8)
            return choices[span.row.name](span.start, span.numel, span.codes, span.packed)

        return self.sweep(rows, work, mask=True)

    def _spans(self, rows: Iterable[Tensor], mask: bool) -> Iterator[MaskedSpan]:
        for row in rows:
            for start, stop in blocks_of(row.numel) if row.numel else ((0, 0),):
                packed = self._artifact.mask_bits(row, start, stop) if mask else None
                yield MaskedSpan(row, start, stop, packed, None)
