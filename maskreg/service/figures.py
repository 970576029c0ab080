"""Artifacts whose figures were held against their tensor tables.

A manifest's digest proves that nobody changed it, not that its publisher counted right. So opening an artifact computes
its figures again from the tensor table, which takes milliseconds for a large model. Neither of the two ever changes:
figures that agreed once agree for good, and are shown without reading the table again.
"""

from __future__ import annotations

from maskreg.digest import Digest
from maskreg.registry import Registry
from maskreg.service.remembered import Remembered

_REMEMBERED = 16_384


class Figures:
    """Which artifacts of a registry state figures that are right. Safe to use from many threads."""

    def __init__(self, registry: Registry) -> None:
        """Look into this registry; nothing is read yet."""
        self._registry = registry
        self._right: Remembered[Digest, bool] = Remembered(_REMEMBERED)

    def check(self, digest: Digest) -> None:
        """Refuse an artifact whose manifest states other figures than its tensor table gives.

        Raises:
            NotFoundError: there is no such artifact.
            DataError: it does, or one of the two is damaged.
        """
        if digest not in self._right:
            self._registry.artifact(digest)
            self._right.put(digest, True)
