"""What a reference means in a registry."""

from __future__ import annotations

from dataclasses import dataclass

from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.store.reflog import RefEntry


@dataclass(frozen=True)
class Resolved:
    """What a reference means.

    Attributes:
        ref: the reference as it was asked for.
        digest: the artifact.
        entry: the ref log's entry; None for a pinned reference whose tag is absent or points elsewhere.
    """

    ref: Ref
    digest: Digest
    entry: RefEntry | None

    @property
    def card(self) -> Card:
        """What people say about it; empty when no tag points to it."""
        return self.entry.card if self.entry else Card()
