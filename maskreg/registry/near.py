"""Names that look like one that is not there."""

from __future__ import annotations

import difflib

from maskreg.ref import Ref
from maskreg.store.base import Store

REFS = "refs/"
_MAX_NEAR = 3


def near_refs(store: Store, ref: Ref) -> list[str]:
    """At most three references that somebody may have meant by ``ref``, the most alike first."""
    names = {str(Ref(*parts)) for parts in _paths(store)}
    wanted = str(Ref(ref.project, ref.name, ref.tag))
    # The same artifact under another tag or in another project is nearer than a name that is spelled alike.
    same = sorted(n for n in names if n.rpartition("/")[2].partition(":")[0] == ref.name)
    alike = difflib.get_close_matches(wanted, names, n=_MAX_NEAR, cutoff=0.6)
    return list(dict.fromkeys([*same, *alike]))[:_MAX_NEAR]


def _paths(store: Store) -> set[tuple[str, str, str]]:
    found = set()
    for info in store.list(REFS):
        parts = info.key.removeprefix(REFS).split("/")
        if len(parts) == 4:
            found.add((parts[0], parts[1], parts[2]))
    return found
