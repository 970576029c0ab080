"""Names that look like one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from maskreg.ref import Ref

_MAX_NEAR = 3


def near_refs(tags: Iterable[Ref], ref: Ref) -> list[str]:
    """At most three of ``tags`` that somebody may have meant by ``ref``, the most alike first."""
    names = {str(tag) for tag in tags}
    wanted = str(Ref(ref.project, ref.name, ref.tag))
    # The same artifact under another tag or in another project is nearer than a name that is spelled alike.
    same = sorted(n for n in names if n.rpartition("/")[2].partition(":")[0] == ref.name)
    alike = difflib.get_close_matches(wanted, names, n=_MAX_NEAR, cutoff=0.6)
    return list(dict.fromkeys([*same, *alike]))[:_MAX_NEAR]
