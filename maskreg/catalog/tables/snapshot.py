"""An index in memory, for a store that has no catalog: filled once, searched, and thrown away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from maskreg.catalog.query import Answer, Query
from maskreg.catalog.tables.columns import Row
from maskreg.catalog.tables.matching import answer_from
from maskreg.catalog.tables.rows import NO_OVERLAP, artifact_row, ref_row
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.store.entry import ref_of

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.store.reflog import RefEntry


class Snapshot:
    """A :class:`~maskreg.catalog.base.Searchable` of rows, to be used by one thread. No overlaps are recorded in it."""

    keeps_up = False

    def __init__(
        self, entries: Iterable[RefEntry], manifests: Iterable[tuple[Digest, Manifest]], unread: Mapping[str, str]
    ) -> None:
        """Index the newest entry of every ref, and artifacts; ``unread`` is as for ``Catalog.rebuild``."""
        self._refs: dict[Ref, Row] = {}
        self._artifacts: dict[str, Row] = {}
        self._unread: dict[str, str] = {}
        for entry in entries:
            self.put_ref(entry)
        for digest, manifest in manifests:
            self.put_artifact(digest, manifest)
        self._unread.update(unread)

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""
        self._artifacts[digest] = artifact_row(digest, manifest, NO_OVERLAP)

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""
        if entry.n >= self._refs.get(entry.ref, {"n": 0})["n"]:
            self._refs[entry.ref] = ref_row(entry)
        self._unread = {key: why for key, why in self._unread.items() if ref_of(key) != entry.ref}

    def answer(self, query: Query) -> Answer:
        """The matches, and what the index knows it lacks.

        Raises:
            UsageError: the query is malformed.
        """
        return answer_from(list(self._refs.values()), list(self._artifacts.values()), query, dict(self._unread))
