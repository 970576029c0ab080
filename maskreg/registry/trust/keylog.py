"""Key documents in a store: which there are, and reading and writing them and the lists that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.registry.trust.document import (
    KEYS,
    Heads,
    KeyDocument,
    document_key,
    fresh_key,
    heads_bytes,
    heads_key,
    heads_prefix,
    parse_heads,
)
from maskreg.store.base import Store

_KEY = re.compile(re.escape(KEYS) + r"([^/]+)/([0-9]{20})\.json")


class KeyLog:
    """The key documents of a registry.

    Args:
        store: where they are.
        create: writes an object unless there is one; the store's own by default.
    """

    def __init__(self, store: Store, *, create: Callable[[str, bytes], bool] | None = None) -> None:
        self._store = store
        self._create = create or store.create

    def numbers(self) -> dict[str, int]:
        """Number of the latest document of each project that has one; lists keys and reads no document."""
        numbers: dict[str, int] = {}
        for info in self._store.list(KEYS):
            if match := _KEY.fullmatch(info.key):
                numbers[match[1]] = max(int(match[2]), numbers.get(match[1], 0))
        return numbers

    def read(self, project: str, n: int) -> KeyDocument | None:
        """Document ``n`` of a project, read directly; None when there is none.

        Raises:
            CorruptError: it is damaged, stored under another's key, or not signed by its own key.
            FormatError, LimitError: not a document that this version reads.
        """
        key = document_key(project, n)
        try:
            return KeyDocument.parse(key, self._store.get(key, max_bytes=LIMITS.ref_bytes))
        except NotFoundError:
            return None

    def create(self, document: KeyDocument) -> None:
        """Write the next document of a project.

        Raises:
            ConflictError: somebody else has just written one of this number.
        """
        self._create(document_key(document.project, document.n), document.to_bytes())
        # The answer may be lost, or another writer have been first: what is stored counts.
        stored = self.read(document.project, document.n)
        if stored is None or stored.id != document.id:
            winner = f"{stored.by} gave it {stored.key.short}" if stored else "it is not there"
            raise ConflictError(f"key {document.n} of {document.project} was not written: {winner}")

    def heads(self, document: KeyDocument) -> Heads:
        """The latest entries that a document vouches for.

        Raises:
            CorruptError: the list is missing or another one.
            FormatError, LimitError: it is not one.
        """
        return self.read_heads(document.project, document.heads)

    def read_heads(self, project: str, digest: Digest) -> Heads:
        """A list of latest entries; what is raised is as for :meth:`heads`."""
        key = heads_key(project, digest)
        try:
            data = self._store.get(key, max_bytes=LIMITS.heads_bytes)
        except NotFoundError as error:
            raise CorruptError(key, "this list is missing, and a signed document names it") from error
        return parse_heads(key, data, digest)

    def put_heads(self, registry: str, project: str, heads: Heads) -> Digest:
        """Write a list of latest entries; returns its digest."""
        data = heads_bytes(registry, project, heads)
        digest = Digest.of(data)
        self._store.create(heads_key(project, digest), data)
        return digest

    def drop_heads(self, project: str, *, keep: Collection[Digest]) -> None:
        """Delete the lists of latest entries that nothing names any more."""
        kept = {heads_key(project, digest) for digest in keep}
        self._store.delete([info.key for info in list(self._store.list(heads_prefix(project))) if info.key not in kept])

    def statement(self, project: str) -> bytes | None:
        """The statement of freshness of a project, as it is stored; None when there is none."""
        try:
            return self._store.get(fresh_key(project), max_bytes=LIMITS.ref_bytes)
        except NotFoundError:
            return None

    def put_statement(self, project: str, data: bytes) -> None:
        """Write a statement of freshness in the place of the one before."""
        self._store.put(fresh_key(project), data)
