"""Refs as an append-only log inside a store: moving a tag is one create-only write of the next entry.

The entries of a tag are ``refs/<project>/<name>/<tag>/<20-digit n>.json``, from 1 on; the highest is where the
tag stands, the others are its history, and a deleted tag ends in an entry without a digest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, DataError, NotFoundError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.ref import Card, Ref
from maskreg.store.base import Store
from maskreg.store.entry import REFS, RefEntry, entry_key

__all__ = ["RefEntry", "RefLog"]

_READERS = 16
_BATCH = 1_024
_ENTRY = re.compile(r"(refs/[^/]+/[^/]+/[^/]+)/([0-9]{20})\.json")


class RefLog:
    """The tags of a registry, read from and appended to a store.

    Args:
        store: where the entries are.
        lock: takes an exclusive lock by name, for a store whose create-only writes cannot be trusted.
    """

    def __init__(self, store: Store, *, lock: Callable[[str], AbstractContextManager[object]] | None = None) -> None:
        self._store = store
        self._lock = lock

    def head(self, ref: Ref) -> RefEntry | None:
        """Where a tag stands: its latest entry, which may say that it was deleted; None if it never was.

        Raises:
            CorruptError: the entry does not say what its key says.
            FormatError, LimitError: it is not a ref entry that this version reads.
        """
        numbers = self._numbers(ref)
        return self._read(entry_key(ref, max(numbers))) if numbers else None

    def history(self, ref: Ref, damaged: list[CorruptError] | None = None) -> list[RefEntry]:
        """All entries of a tag, the oldest first; ``damaged`` and what is raised are as for :meth:`heads`."""
        return list(self._readable([entry_key(ref, n) for n in sorted(self._numbers(ref))], damaged))

    def heads(self, damaged: list[CorruptError] | None = None) -> Iterator[RefEntry]:
        """The latest entry of every tag, deleted ones too, in the order of their names.

        Args:
            damaged: gets an error for each entry that cannot be read, which is then left out; without it the first
                of them is raised, as by :meth:`head`.
        """
        yield from self._readable([f"{tag}/{n:020d}.json" for tag, n in sorted(self._latest().items())], damaged)

    def _readable(self, keys: Sequence[str], damaged: list[CorruptError] | None) -> Iterator[RefEntry]:
        for key, found in zip(keys, self._read_many(keys), strict=True):
            if isinstance(found, RefEntry):
                yield found
            elif damaged is None:
                raise found
            else:
                what = found.message.removeprefix(f"{key}: ")
                damaged.append(CorruptError(key, what, hint=found.hint))

    def tags(self) -> list[Ref]:
        """Every tag that was ever set, by the names of its entries alone; deleted ones too."""
        paths = (tag.removeprefix(REFS).split("/") for tag in sorted(self._latest()))
        return [Ref(project, name, tag) for project, name, tag in paths]

    def _latest(self) -> dict[str, int]:
        latest: dict[str, int] = {}
        for info in self._store.list(REFS):
            if match := _ENTRY.fullmatch(info.key):
                latest[match[1]] = max(int(match[2]), latest.get(match[1], 0))
        return latest

    def digests(self, damaged: list[CorruptError] | None = None) -> set[Digest]:
        """Digests that some tag stands at; ``damaged`` and what is raised are as for :meth:`heads`."""
        return {entry.digest for entry in self.heads(damaged) if entry.digest is not None}

    def append(self, ref: Ref, *, after: int, digest: Digest | None, card: Card, by: str, origin: str = "") -> RefEntry:
        """Move a tag, or delete it.

        Args:
            ref: the tag.
            after: number of the entry that the decision was made on; 0 when the tag was never set.
            digest: where the tag moves to; None deletes it.
            card: what people say about the artifact.
            by: who does it.
            origin: uuid of the registry that it was pulled from; empty when made here.

        Returns:
            The entry with number ``after + 1``: this one, or one that says the same about the artifact.

        Raises:
            ConflictError: somebody else moved the tag since; the message names who, when and where to.
            UnavailableError: the store does not answer, and it is not known whether the tag moved.
            FormatError, LimitError: the card or ``by`` would make an entry that cannot be read.
        """
        entry = RefEntry(
            *(ref.project, ref.name, ref.tag, after + 1, digest, digest is None, card, by),
            at=datetime.now(UTC),
            write_id=uuid4().hex,
            origin=origin,
        )
        data = entry.to_bytes()
        # What nobody could read must not become the tag's latest entry.
        RefEntry.parse(entry.key, data)
        try:
            if self._write(entry, data):
                return entry
        except UnavailableError as lost:
            # The answer is lost, which does not tell whether the write is.
            return self._settle(entry, lost)
        return self._settle(entry, None)

    def _write(self, entry: RefEntry, data: bytes) -> bool:
        if self._lock is None:
            return self._store.create(entry.key, data)
        with self._lock(f"ref:{entry.ref.path}"):
            if max(self._numbers(entry.ref), default=0) >= entry.n:
                return False
            self._store.put(entry.key, data)
            return True

    def _settle(self, mine: RefEntry, lost: UnavailableError | None) -> RefEntry:
        try:
            theirs = self._read(mine.key)
        except NotFoundError:
            # Nothing was written under this number: the answer was lost on the way there.
            if lost is not None:
                raise lost from None
            raise
        if theirs.write_id == mine.write_id or theirs.says_the_same(mine):
            return theirs
        wanted = mine.digest.short if mine.digest else "deleted"
        raise ConflictError(
            f"{mine.ref}: {theirs.by} moved it at {theirs.at:%Y-%m-%d %H:%M:%S} UTC to "
            f"{theirs.digest.short if theirs.digest else 'deleted'}, and not to {wanted}",
            hint=f"look at what is there now, then try again: maskreg show {mine.ref}",
        )

    def _numbers(self, ref: Ref) -> list[int]:
        tag = f"{REFS}{ref.path}"
        matches = (_ENTRY.fullmatch(info.key) for info in self._store.list(tag + "/"))
        return [int(match[2]) for match in matches if match and match[1] == tag]

    def _read(self, key: str) -> RefEntry:
        try:
            return RefEntry.parse(key, self._store.get(key, max_bytes=LIMITS.ref_bytes))
        except DataError as error:
            # One that only a later version reads has a hint already, and is nothing to remove.
            error.hint = error.hint or (
                f"restore it from a copy, or go back to the tag's entry before it: {_removal(self._store.url, key)}"
            )
            raise

    def _read_or_error(self, key: str) -> RefEntry | DataError:
        try:
            return self._read(key)
        except DataError as error:
            return error

    def _read_many(self, wanted: Sequence[str]) -> Iterator[RefEntry | DataError]:
        with ThreadPoolExecutor(_READERS) as pool:
            # In batches, so that a reader who stops early does not wait for everything.
            for start in range(0, len(wanted), _BATCH):
                yield from pool.map(self._read_or_error, wanted[start : start + _BATCH])


def _removal(url: str, key: str) -> str:
    # For a shell, to be read before it is run.
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return f"aws s3 rm {shlex.quote(f'{url}/{key}')}"
    return f"rm {shlex.quote(f'{unquote(parts.path)}/{key}')}"
