"""Comparisons for pages: bounded in size, a few at a time, and kept, because a digest stands for the same bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from maskreg.digest import Digest
from maskreg.errors import TryAgainError
from maskreg.ref import Ref
from maskreg.service.context import Service
from maskreg.service.remembered import Remembered
from maskreg.workspace.compare import MaskComparison, compare
from maskreg.workspace.pairs import check_size

MOST_MASKS = 8

_AT_ONCE = 2
_KEPT = 32

Key = tuple[tuple[str, Digest | None], ...]


@dataclass
class Comparisons:
    """The comparisons of a server.

    Attributes:
        kept: the latest, by what was compared.
    """

    kept: Remembered[Key, MaskComparison] = field(default_factory=lambda: Remembered(_KEPT))
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_AT_ONCE))

    def of(self, service: Service, refs: Sequence[Ref]) -> MaskComparison:
        """What masks share.

        Args:
            service: whose registry has them.
            refs: their names, each pinned to a digest.

        Raises:
            LimitError: they are too large for a page.
            TryAgainError: the server compares other masks.
            PairMismatchError: they are of different rules, tensors or sources.
            DataError: one is damaged.
        """
        key = tuple((str(ref), ref.digest) for ref in refs)
        if (kept := self.kept.get(key)) is not None:
            return kept
        self._check_size(service, refs)
        if not self._turns.acquire(blocking=False):
            raise TryAgainError("the server compares other masks", hint="load the page again in a few seconds")
        try:
            result = compare(*refs, allow_different=True, remote=service.remote, workspace=service.workspace)
        finally:
            self._turns.release()
        return self.kept.put(key, result)

    def _check_size(self, service: Service, refs: Sequence[Ref]) -> None:
        sizes = (service.workspace.find(ref, service.remote).manifest.totals.numel for ref in refs)
        check_size(sizes, service.most_compared, (Ref(ref.project, ref.name, ref.tag) for ref in refs))
