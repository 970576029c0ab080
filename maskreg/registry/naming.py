"""What a reference means in a registry, and which names resemble one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from maskreg.catalog.query import LARGE
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.result import Result
from maskreg.store.reflog import RefEntry, RefLog

_MAX_SUGGESTIONS = 3
_MAX_CANDIDATES = 20


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


@dataclass(frozen=True)
class Removal(Result):
    """A tag was removed before it was set to another artifact.

    Attributes:
        digest: what it pointed to until then.
        by: who removed it.
        at: when, by the remover's clock (aware, UTC).
    """

    digest: Digest
    by: str
    at: datetime

    @classmethod
    def before(cls, after: RefEntry | None, digest: Digest) -> Removal | None:
        """The removal that ``after``, the latest entry of a tag, is; None when it is none, or ``digest`` comes back."""
        if after is None or after.removed in (None, digest):
            return None
        assert after.removed is not None  # for type checkers: it is not in the tuple
        return cls(after.removed, after.by, after.at)

    @classmethod
    def between(cls, entries: Sequence[RefEntry]) -> Removal | None:
        """The last removal in a part of a log that ends at another artifact than it began with."""
        last = entries[-1].digest
        if last is None or entries[0].last_digest == last:
            return None
        removals = (cls.before(entry, last) for entry in reversed(entries[:-1]))
        return next((removal for removal in removals if removal), None)

    def sentence(self, ref: Ref) -> str:
        """A remark for people."""
        when = f"{self.at:%Y-%m-%d %H:%M:%S} UTC"
        return f"{ref} was {self.digest.short} until {self.by} removed it at {when}; it is another artifact now"


def nearby(log: RefLog, ref: Ref) -> list[Ref]:
    """Tags among which to look for what was meant: all; in a large registry some of the project."""
    tags = list(islice(log.tags(), LARGE + 1))
    return tags if len(tags) <= LARGE else list(islice(log.tags(ref.project), LARGE))


def similar_names(tags: Iterable[Ref], ref: Ref, *, is_set: Callable[[Ref], bool] = lambda tag: True) -> list[str]:
    """At most three of ``tags`` that ``ref`` may have been meant to be, the most similar first.

    Args:
        tags: what there is to suggest.
        ref: what was written.
        is_set: whether a tag still points to an artifact; asked of few tags, until three do.
    """
    names = {str(tag) for tag in tags}
    # The same name under another tag or in another project is a better guess than a similar spelling.
    same = sorted(n for n in names if n.rpartition("/")[2].partition(":")[0] == ref.name)
    unpinned = str(Ref(ref.project, ref.name, ref.tag))
    alike = difflib.get_close_matches(unpinned, sorted(names), n=_MAX_CANDIDATES, cutoff=0.6)
    candidates = list(dict.fromkeys([*same, *alike]))[:_MAX_CANDIDATES]
    return list(islice((name for name in candidates if is_set(Ref.parse(name))), _MAX_SUGGESTIONS))
