"""Refs as an append-only log inside a store: moving a tag is one create-only write of the next entry.

The entries of a tag are ``refs/<project>/<name>/<tag>/<20-digit n>.json``, from 1 on without gaps. The highest is the
tag's state, the others are its history; a deleted tag ends in an entry without a digest. No entry is ever replaced, and
each holds the id of the one before it (:mod:`maskreg.store.entry`)::

    after = the latest entry                  read when the command begins, before its work
    ... extract, push ...                     minutes or hours
    put(back reference)                       for garbage collection (:mod:`maskreg.store.entry`)
    create(entry after.n + 1)                 the store refuses it when there is one (If-None-Match: *, O_EXCL)
      written                                 go on
      refused, or the answer was lost         read the entry of that number:
        my write_id                           my write arrived and only its answer was lost: go on
        same digest, card, mark, deletion     both writers wanted the same: go on
        anything else                         ConflictError, naming the winner
        no such entry, the answer was lost    the request was lost: UnavailableError, safe to try again
    list the tag                              this entry, or a later one, is listed: done

For example, Ada and Bob both read entry 3 and push different artifacts. Both create entry 4; the store accepts Ada's.
Bob reads entry 4, finds Ada's digest and fails with her name: his tag is not silently lost, and neither is hers.
So a tag needs no lock, no transaction and no clock, only a store that honors create-only writes
(:mod:`maskreg.store.probe`).

A listing only says where to look. An entry that it leaves out while a later one, or a direct read, shows it makes the
listing stale, not the log damaged (:mod:`maskreg.store.chain`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from uuid import uuid4

from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, DataError, NotFoundError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.parallel import ordered
from maskreg.ref import Card, Ref
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.chain import (
    Folder,
    check_link,
    check_movable,
    each_folder,
    link_fault,
    looks,
    not_listed,
    removal,
)
from maskreg.store.entry import REFS, RefEntry, entry_key, put_back_reference, ref_of

__all__ = ["RefEntry", "RefLog"]

_READERS = 16
_PART = 16


class RefLog:
    """The tags of a registry, read from and appended to a store.

    Args:
        store: where the entries are.
        sign: called with each entry that is about to be written; returns it, signed where that is due.
        may_change: the store is a service's, which can sign what it is given: what it stored counts.
        check: called with each latest entry that :meth:`head` and :meth:`heads` have read; raises ``CorruptError`` for
            one that must not be shown.
    """

    def __init__(
        self,
        store: Store,
        *,
        sign: Callable[[RefEntry], RefEntry] | None = None,
        may_change: bool = False,
        check: Callable[[RefEntry], None] | None = None,
    ) -> None:
        self._store = store
        self._sign = sign
        self._may_change = may_change
        self._check = check

    def head(self, ref: Ref) -> RefEntry | None:
        """The latest entry of a tag, which can say that the tag was deleted; None if the tag never existed."""
        folder = self._sound(self._folder(ref))
        if not folder.latest:
            return None
        entry = self.entry(ref, folder.latest)
        if self._check is not None:
            self._check(entry)
        return entry

    def entry(self, ref: Ref, n: int) -> RefEntry:
        """Entry ``n`` of a tag, which must exist; what is raised is as for :meth:`head`."""
        key = entry_key(ref, n)
        try:
            return self._get(key)
        except NotFoundError:
            raise _vanished(key) from None

    def peek(self, ref: Ref, n: int) -> RefEntry | None:
        """Entry ``n`` of a tag, read directly and not through a listing; None when there is none."""
        try:
            return self._get(entry_key(ref, n))
        except NotFoundError:
            return None

    def entries(self, ref: Ref, first: int, last: int) -> list[RefEntry]:
        """Entries ``first`` to ``last`` of a tag, which must exist and follow one another, as for :meth:`head`."""
        return list(self._linked([entry_key(ref, n) for n in range(first, last + 1)], None))

    def until(self, head: RefEntry) -> list[RefEntry]:
        """All entries of a tag up to one that was just read, the oldest first, which must follow one another."""
        # By their numbers: another listing can be behind the one that showed this entry.
        older = self.entries(head.ref, 1, head.n - 1)
        if older:
            check_link(older[-1], head)
        return [*older, head]

    def back(self, head: RefEntry) -> Iterator[RefEntry]:
        """All entries of a tag from one that was just read back to the first, as they are asked for."""
        yield head
        for last in range(head.n - 1, 0, -_PART):
            older = self.entries(head.ref, max(1, last - _PART + 1), last)
            check_link(older[-1], head)
            yield from reversed(older)
            head = older[0]

    def find_damage(self, ref: Ref | None = None) -> list[CorruptError]:
        """Everything that is wrong with the log of a tag, or of all, by key: reads every entry."""
        damaged: list[CorruptError] = []
        for _ in self.walk(damaged, self._store.list(REFS if ref is None else f"{REFS}{ref.path}/")):
            pass
        return sorted(damaged, key=lambda error: error.key)

    def walk(
        self, damaged: list[CorruptError], listing: Iterable[ObjectInfo]
    ) -> Iterator[tuple[Folder, RefEntry | None]]:
        """Read every entry of every tag of a listing, and hold it against the one before.

        Yields:
            Each tag, in the order of their keys, with its latest entry; None where that cannot be read, or the folder
            has a gap or something else in it.
        """
        # Keys are drawn ahead of the entries that are read: folders wait here until their last entry has come.
        waiting: deque[tuple[Folder, bool]] = deque()

        def keys() -> Iterator[str]:
            for folder in each_folder(listing):
                waiting.append((folder, self._is_sound(folder, damaged)))
                yield from folder.keys

        def done() -> tuple[Folder, RefEntry | None]:
            folder, is_whole = waiting.popleft()
            is_latest = before is not None and before.key == folder.latest_key
            return folder, before if is_whole and is_latest else None

        before: RefEntry | None = None
        for entry in self._linked(keys(), damaged):
            while not entry.key.startswith(f"{waiting[0][0].path}/"):
                yield done()
            before = entry
        while waiting:
            yield done()

    def heads(
        self, damaged: list[CorruptError] | None = None, *, project: str = "", name: str = ""
    ) -> Iterator[RefEntry]:
        """The latest entry of every tag, deleted ones included, in the order of their keys, as they are read."""
        tags = each_folder(self._store.list(_prefix(project, name)))
        keys = (folder.latest_key for folder in tags if self._is_sound(folder, damaged))
        return (e for e in self.read(keys, damaged) if self._may_be_shown(e, damaged))

    def _may_be_shown(self, entry: RefEntry, damaged: list[CorruptError] | None) -> bool:
        try:
            if self._check is not None:
                self._check(entry)
        except CorruptError as error:
            if damaged is None:
                raise
            damaged.append(error)
            return False
        return True

    def _linked(self, keys: Iterable[str], damaged: list[CorruptError] | None) -> Iterator[RefEntry]:
        before: RefEntry | None = None
        for entry in self.read(keys, damaged):
            if before is not None and (before.ref, before.n + 1) == (entry.ref, entry.n):
                check_link(before, entry, damaged)
            before = entry
            yield entry

    def read(self, keys: Iterable[str], damaged: list[CorruptError] | None) -> Iterator[RefEntry]:
        """Entries by their keys, in order, a few in memory at a time.

        Errors of those that cannot be read are appended to ``damaged``; without it the first is raised.
        """
        with closing(ordered(self._read_some, _parts(keys), jobs=_READERS)) as parts:
            for key, result in chain.from_iterable(parts):
                if isinstance(result, RefEntry):
                    yield result
                elif damaged is None:
                    raise result
                else:
                    damaged.append(CorruptError(key, result.message.removeprefix(f"{key}: "), hint=result.hint))

    def _read_some(self, keys: list[str]) -> list[tuple[str, RefEntry | DataError]]:
        results: list[tuple[str, RefEntry | DataError]] = []
        for key in keys:
            try:
                results.append((key, self._get(key)))
            except DataError as error:
                results.append((key, error))
            except NotFoundError:
                results.append((key, _vanished(key)))
        return results

    def _get(self, key: str) -> RefEntry:
        try:
            return RefEntry.parse(key, self._store.get(key, max_bytes=LIMITS.ref_bytes))
        except DataError as error:
            # An entry of a later version has a hint already, and must not be removed.
            repair = f"restore it from a copy, or return to the entry before it: {removal(self._store.url, key)}"
            error.hint = error.hint or repair
            raise

    def tags(self, project: str = "", name: str = "") -> Iterator[Ref]:
        """Every tag that was ever set, deleted ones included; lists keys, as they are asked for, and reads no entry."""
        infos = self._store.list(_prefix(project, name))
        return (ref_of(f"{folder.path}/") for folder in each_folder(infos))

    def numbers(self, damaged: list[CorruptError] | None = None) -> dict[Ref, int]:
        """Number of the latest entry of every tag, removed ones included; lists keys and reads no entry."""
        numbers: dict[Ref, int] = {}
        for folder in each_folder(self._store.list(REFS)):
            if folder.latest:
                numbers[ref_of(f"{folder.path}/")] = folder.latest
            elif damaged is not None:
                damaged.append(folder.stray_error(self._store.url))
        return numbers

    def append(
        self,
        ref: Ref,
        *,
        after: RefEntry | None,
        digest: Digest | None,
        card: Card,
        by: str,
        origin: str = "",
        immutable: bool = False,
    ) -> RefEntry:
        """Move a tag, or delete it."""
        entry = RefEntry(
            *(ref.project, ref.name, ref.tag, after.n + 1 if after else 1, digest, digest is None, card, by),
            at=datetime.now(UTC),
            write_id=uuid4().hex,
            origin=origin,
            previous=after.id if after else None,
            removed=after.last_digest if after and digest is None else None,
            immutable=immutable or (after is not None and after.immutable),
        )
        entry = entry if self._sign is None else self._sign(entry)
        check_movable(after, digest)
        if after is not None and self.entry(ref, after.n).id != after.id:
            fault = f"it was replaced since entry {after.n} by {after.by} was read, so nothing is appended to it"
            raise CorruptError(after.key, fault, history=ref)
        data = entry.to_bytes()
        # An unreadable entry must never become the latest one.
        RefEntry.parse(entry.key, data)
        # First, so that no entry is without it.
        put_back_reference(self._store, entry)
        lost: UnavailableError | None = None
        try:
            is_mine = self._store.create(entry.key, data) and not self._may_change
        except UnavailableError as error:
            # The answer is lost; the write might have arrived.
            is_mine, lost = False, error
        written = entry if is_mine else self._settle(entry, lost)
        # A move that readers do not see is not reported as done.
        self._listed(ref, written.n)
        return written

    def accept(self, entry: RefEntry, after: RefEntry | None) -> bool:
        """Append an entry that a client has made, which reads it back; False when there is one of its number."""
        latest = after.n if after else 0
        if entry.n != latest + 1:
            fault = f"{entry.ref}: entry {entry.n} cannot be the next one, the latest is {latest}"
            raise ConflictError(fault, history=entry.ref)
        check_movable(after, entry.digest)
        if after is not None and (fault := link_fault(after, entry)):
            raise CorruptError(entry.key, fault, history=entry.ref)
        put_back_reference(self._store, entry)
        return self._store.create(entry.key, entry.to_bytes())

    def _settle(self, mine: RefEntry, lost: UnavailableError | None) -> RefEntry:
        try:
            theirs = self._get(mine.key)
        except NotFoundError:
            # The request never arrived.
            if lost is not None:
                raise lost from None
            raise
        if theirs.previous == mine.previous and (theirs.write_id == mine.write_id or theirs.is_equivalent(mine)):
            return theirs
        # A listing without this entry is why the command began with an outdated one.
        self._listed(mine.ref, mine.n)
        raise ConflictError(
            f"{mine.ref}: {theirs.by} moved it to {_state(theirs)} at {theirs.at:%Y-%m-%d %H:%M:%S} UTC, "
            f"so it was not moved to {_state(mine)}",
            history=mine.ref,
        )

    def _listed(self, ref: Ref, n: int) -> int:
        # Number of the latest entry, which is n at least.
        for _ in looks():
            latest = self._sound(self._folder(ref)).latest
            if latest >= n:
                return latest
        raise not_listed(self._store.url, entry_key(ref, n))

    def _folder(self, ref: Ref) -> Folder:
        path = f"{REFS}{ref.path}"
        return next(each_folder(self._store.list(path + "/")), Folder(path))

    def _is_sound(self, folder: Folder, damaged: list[CorruptError] | None) -> bool:
        try:
            folder.entries = self._sound(folder).entries
        except CorruptError as error:
            if damaged is None:
                raise
            damaged.append(error)
            return False
        return bool(folder.entries)

    def _sound(self, folder: Folder) -> Folder:
        # Damage is raised; a listing that lacks an entry which is there is listed again.
        for turn in looks():
            if turn:
                folder = self._folder(ref_of(f"{folder.path}/"))
            if folder.strays:
                raise folder.stray_error(self._store.url)
            if not (missing := folder.first_gap()):
                return folder
            if self._store.head(missing) is None:
                raise folder.gap_error(self._store.url, missing)
        raise not_listed(self._store.url, missing)


def _parts(keys: Iterable[str]) -> Iterator[list[str]]:
    # To hand over a key costs more than to parse its entry, so only the first go alone.
    rest = iter(keys)
    sizes = chain(repeat(1, 4 * _READERS), repeat(_PART))
    while part := list(islice(rest, next(sizes))):
        yield part


def _vanished(key: str) -> CorruptError:
    return CorruptError(key, "it was listed, and is not there", hint="run the same command again in a moment")


def _prefix(project: str, name: str) -> str:
    return "/".join([REFS.removesuffix("/"), *filter(None, (project, name)), ""])


def _state(entry: RefEntry) -> str:
    return entry.digest.short if entry.digest else "deleted"
