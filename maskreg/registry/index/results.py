"""What work with a catalog results in: names, what was left out, a rebuilt index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from maskreg.catalog import SearchResult
from maskreg.digest import Digest
from maskreg.errors import CorruptError, MaskregError
from maskreg.ref import Ref
from maskreg.result import Result, plain


@dataclass(frozen=True)
class LeftOut(Result):
    """A name that a listing cannot describe.

    Attributes:
        ref: the name.
        digest: the artifact that it points to; None when its entry in the ref log cannot be read.
        error: what is damaged or missing.
    """

    ref: str
    digest: Digest | None
    error: MaskregError

    @property
    def reason(self) -> str:
        """What is damaged or missing, as a sentence."""
        return self.error.message

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        error = self.error.to_json()
        return {"ref": self.ref, "digest": plain(self.digest), "reason": error.pop("message"), **error}


@dataclass(frozen=True)
class Search:
    """What a search found, and what it could not look at.

    Attributes:
        results: live refs that match, in the query's order.
        left_out: names that may match or not, because what describes them cannot be read; in their order.
    """

    results: tuple[SearchResult, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Rebuilt(Result):
    """A catalog that was recreated from the store.

    Attributes:
        refs: tags in it.
        artifacts: artifacts in it.
        damaged: what could not be read in the store, and was left out.
        lost: measurements and events that were damaged in the catalog, and that only it held.
        aside: where the damaged file is now; empty when it was repaired in place.
    """

    refs: int
    artifacts: int
    damaged: tuple[MaskregError, ...]
    lost: int
    aside: str = ""


def without(search: Search, damaged: Mapping[Ref, CorruptError]) -> Search:
    """A search whose results do not hold these refs, with the reason; what it left out is in order."""
    results = tuple(row for row in search.results if Ref(row.project, row.name, row.tag) not in damaged)
    left_out = {str(ref): LeftOut(str(ref), None, error) for ref, error in damaged.items()}
    # Damage that was read says more than what is missing.
    left_out |= {name.ref: name for name in search.left_out}
    return Search(results, tuple(left_out[ref] for ref in sorted(left_out)))
