"""What a reference means in a registry, and which names resemble one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.store.reflog import RefEntry

_MAX_SUGGESTIONS = 3


@dataclass(frozen=True)
class Resolved:
    """What a reference means.

    Attributes:
        ref: the reference that was resolved.
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


def similar_names(tags: Iterable[Ref], ref: Ref) -> list[str]:
    """At most three of ``tags`` that ``ref`` may have been meant to be, the most similar first."""
    names = {str(tag) for tag in tags}
    # The same name under another tag or in another project is a better guess than a similar spelling.
    same = sorted(n for n in names if n.rpartition("/")[2].partition(":")[0] == ref.name)
    unpinned = str(Ref(ref.project, ref.name, ref.tag))
    alike = difflib.get_close_matches(unpinned, names, n=_MAX_SUGGESTIONS, cutoff=0.6)
    return list(dict.fromkeys([*same, *alike]))[:_MAX_SUGGESTIONS]
