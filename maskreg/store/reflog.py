"""Refs as an append-only log inside a store: moving a tag is one create-only write of the next entry.

The entries of a tag are ``refs/<project>/<name>/<tag>/<20-digit n>.json``, from 1 on. The highest is the tag's state,
the others are its history; a deleted tag ends in an entry without a digest. No entry is ever replaced::

    n = number of the latest entry            read when the command begins, before its work
    ... extract, push ...                     minutes or hours
    create(entry n + 1)                       the store refuses it when entry n + 1 exists (If-None-Match: *, O_EXCL)
      written                                 done
      refused, or the answer was lost         read entry n + 1:
        my write_id                           my write arrived and only its answer was lost: done
        same digest, card and deletion        both writers wanted the same: done
        anything else                         ConflictError, naming the winner
        no such entry, the answer was lost    the request was lost: UnavailableError, safe to try again

For example, Ada and Bob both read entry 3 and push different artifacts. Both create entry 4; the store accepts Ada's.
Bob reads entry 4, finds Ada's digest and fails with her name: his tag is not silently lost, and neither is hers.
So a tag needs no lock, no transaction and no clock, only a store that honors create-only writes. Where it does not
(:mod:`maskreg.store.probe`), ``lock`` serializes writers, and each checks inside the lock that n is still the latest.
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
        lock: takes an exclusive lock by name, for a store whose create-only writes do not hold.
    """

    def __init__(self, store: Store, *, lock: Callable[[str], AbstractContextManager[object]] | None = None) -> None:
        self._store = store
        self._lock = lock

    def head(self, ref: Ref) -> RefEntry | None:
        """The latest entry of a tag, which may say that the tag was deleted; None if the tag never existed.

        Raises:
            CorruptError: the entry is damaged, or stored under another's key.
            FormatError, LimitError: it is not a ref entry that this version reads.
        """
        numbers = self._numbers(ref)
        return self._read(entry_key(ref, max(numbers))) if numbers else None

    def history(self, ref: Ref, damaged: list[CorruptError] | None = None) -> list[RefEntry]:
        """All entries of a tag, the oldest first; ``damaged`` and what is raised are as for :meth:`heads`."""
        return list(self._readable([entry_key(ref, n) for n in sorted(self._numbers(ref))], damaged))

    def heads(self, damaged: list[CorruptError] | None = None) -> Iterator[RefEntry]:
        """The latest entry of every tag, deleted ones included, in the order of their names.

        Args:
            damaged: errors of entries that cannot be read are appended to it and the entries left out; without it
                the first error is raised, as by :meth:`head`.
        """
        yield from self._readable([f"{tag}/{n:020d}.json" for tag, n in sorted(self._latest().items())], damaged)

    def _readable(self, keys: Sequence[str], damaged: list[CorruptError] | None) -> Iterator[RefEntry]:
        for key, result in zip(keys, self._read_many(keys), strict=True):
            if isinstance(result, RefEntry):
                yield result
            elif damaged is None:
                raise result
            else:
                damaged.append(CorruptError(key, result.message.removeprefix(f"{key}: "), hint=result.hint))

    def tags(self) -> list[Ref]:
        """Every tag that was ever set, deleted ones included; lists keys and reads no entry."""
        paths = (tag.removeprefix(REFS).split("/") for tag in sorted(self._latest()))
        return [Ref(project, name, tag) for project, name, tag in paths]

    def _latest(self) -> dict[str, int]:
        latest: dict[str, int] = {}
        for info in self._store.list(REFS):
            if match := _ENTRY.fullmatch(info.key):
                latest[match[1]] = max(int(match[2]), latest.get(match[1], 0))
        return latest

    def digests(self, damaged: list[CorruptError] | None = None) -> set[Digest]:
        """Digests that some tag points to; ``damaged`` and what is raised are as for :meth:`heads`."""
        return {entry.digest for entry in self.heads(damaged) if entry.digest is not None}

    def append(self, ref: Ref, *, after: int, digest: Digest | None, card: Card, by: str, origin: str = "") -> RefEntry:
        """Move a tag, or delete it.

        Args:
            ref: the tag.
            after: number of the latest entry when the command began; 0 when there was none.
            digest: where the tag moves to; None deletes it.
            card: what people say about the artifact.
            by: who does it.
            origin: uuid of the registry that it was pulled from; empty when made locally.

        Returns:
            The entry with number ``after + 1``: this one, or an equivalent one by another writer.

        Raises:
            ConflictError: another writer moved the tag; the message says who, when and where to.
            UnavailableError: the store does not answer; the tag may or may not have moved.
            FormatError, LimitError: an entry with this card or ``by`` could not be read back.
        """
        entry = RefEntry(
            *(ref.project, ref.name, ref.tag, after + 1, digest, digest is None, card, by),
            at=datetime.now(UTC),
            write_id=uuid4().hex,
            origin=origin,
        )
        data = entry.to_bytes()
        # An unreadable entry must never become the latest one.
        RefEntry.parse(entry.key, data)
        try:
            if self._write(entry, data):
                return entry
        except UnavailableError as lost:
            # The answer is lost; the write may have arrived.
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
            # The request never arrived.
            if lost is not None:
                raise lost from None
            raise
        if theirs.write_id == mine.write_id or theirs.is_equivalent(mine):
            return theirs
        raise ConflictError(
            f"{mine.ref}: {theirs.by} moved it to {_state(theirs)} at {theirs.at:%Y-%m-%d %H:%M:%S} UTC, "
            f"so it was not moved to {_state(mine)}",
            hint=f"maskreg show {mine.ref}",
        )

    def _numbers(self, ref: Ref) -> list[int]:
        tag = f"{REFS}{ref.path}"
        matches = (_ENTRY.fullmatch(info.key) for info in self._store.list(tag + "/"))
        return [int(match[2]) for match in matches if match and match[1] == tag]

    def _read(self, key: str) -> RefEntry:
        try:
            return RefEntry.parse(key, self._store.get(key, max_bytes=LIMITS.ref_bytes))
        except DataError as error:
            # An entry of a later version has a hint already, and must not be removed.
            error.hint = error.hint or (
                f"restore it from a copy, or return to the entry before it: {_removal(self._store.url, key)}"
            )
            raise

    def _read_or_error(self, key: str) -> RefEntry | DataError:
        try:
            return self._read(key)
        except DataError as error:
            return error

    def _read_many(self, keys: Sequence[str]) -> Iterator[RefEntry | DataError]:
        with ThreadPoolExecutor(_READERS) as pool:
            # In batches, so that a caller who stops early does not wait for all of them.
            for start in range(0, len(keys), _BATCH):
                yield from pool.map(self._read_or_error, keys[start : start + _BATCH])


def _state(entry: RefEntry) -> str:
    return entry.digest.short if entry.digest else "deleted"


def _removal(url: str, key: str) -> str:
    # A command for people to read before they run it.
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return f"aws s3 rm {shlex.quote(f'{url}/{key}')}"
    return f"rm {shlex.quote(f'{unquote(parts.path)}/{key}')}"
