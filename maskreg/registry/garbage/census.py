"""Which artifacts have a name, by a listing of the ref log that is taken again and again and compared each time.

The log only grows: no entry is ever replaced or deleted. So what a listing once had, every later one has too, and a
listing that lacks it is wrong (a cache, a proxy, a rule that deletes). Collecting by it would delete what it hides::

    look    list refs/; an entry that an earlier look had is not listed?  UnavailableError
    read    the digest in the last entry of each tag, read once per entry: entries do not change

For example, of 10,000 tags 3 move between two looks: the second one reads 3 entries. What the looks showed is on disk
(:mod:`maskreg.registry.garbage.ledger`), and one tag at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise

from maskreg.closing import Closing
from maskreg.errors import CorruptError, UnavailableError
from maskreg.progress import SILENT, Progress, counting
from maskreg.ref import Ref
from maskreg.registry.garbage.ledger import Ledger, Tag, Totals, in_ranges, ranges
from maskreg.registry.garbage.standing import Kept, Standing
from maskreg.registry.registry import Registry
from maskreg.store import snapshots
from maskreg.store.backrefs import tag_hash
from maskreg.store.base import ObjectInfo
from maskreg.store.chain import Folder
from maskreg.store.entry import REFS, RefEntry, numbered, ref_of
from maskreg.store.listing import ASK, not_listed
from maskreg.store.snapshots import SnapshotWriter
from maskreg.store.walking import folders_with_listing


class Census(Closing):
    """The tags of a registry as its listings show them.

    Attributes:
        registry: whose.
        deadline: what a tag left after this, by the store's clock, can be restored for a while (aware).
        progress: progress callback, in tags.
        ledger: what the looks showed.
        standing: which artifacts stand on which.
        newest: when the newest entry was written, by the store's clock (aware); None before the first look.
    """

    def __init__(self, registry: Registry, deadline: datetime, progress: Progress = SILENT) -> None:
        self.registry = registry
        self.deadline = deadline
        self.progress = progress
        self.ledger = Ledger()
        self.standing = Standing(registry.store, self.ledger, progress)
        self.newest: datetime | None = None
        # From before the log is listed: what moves from then on is in the journal.
        self._start = registry.refs.journal.start()

    def close(self) -> None:
        """Forget everything."""
        self.ledger.close()

    def new_snapshot(self) -> SnapshotWriter | None:
        """What writes a snapshot of the log as it is read; None where there are too few tags for one."""
        return SnapshotWriter(self.registry.store, self._start) if self.totals().tags >= snapshots.MANY else None

    def totals(self) -> Totals:
        """How many tags and entries the last look showed."""
        return self.ledger.totals()

    def look(self) -> None:
        """List the log again.

        Raises:
            UnavailableError: an entry that was listed before is not any more.
        """
        earlier = self.ledger.all_tags()
        known = next(earlier, None)
        folders = folders_with_listing(self.registry.store.list(REFS))
        for folder, infos in counting(self.progress, "list tags", folders, total=self.totals().tags):
            # Both are in the order of their keys, so what was passed over is not there any more.
            if known is not None and f"{known.path}/" < f"{folder.path}/":
                break
            before, known = (known, next(earlier, None)) if known and known.path == folder.path else (None, known)
            tag = _tag(folder, infos)
            earlier_numbers = before.numbers if before else tag.numbers
            if earlier_numbers != tag.numbers and (lost := set(in_ranges(earlier_numbers)) - set(folder.numbers)):
                raise self._vanished(numbered(folder.path, min(lost)))
            written = max(info.modified for info in infos.values())
            self.newest = max(self.newest or written, written)
            if written > self.deadline:
                self.ledger.leave(self._left(folder, infos))
            if tag != before:
                self.ledger.put(tag)
        if known is not None:
            raise self._vanished(numbered(known.path, next(iter(in_ranges(known.numbers)), 1)))

    def latest(self, refs: Iterable[Ref]) -> dict[Ref, int]:
        """Number of the latest entry of each of these tags that the last look showed."""
        return {ref: tag.latest for ref in refs if (tag := self.ledger.by_hash(tag_hash(ref)))}

    def read(self, damaged: list[CorruptError], snapshot: SnapshotWriter | None = None) -> None:
        """Read what tags point to, as far as the last look showed something new.

        Args:
            damaged: errors of tags that cannot be read are appended to it.
            snapshot: is given what is read.

        Raises:
            UnavailableError: the listing lacks an entry that is there.
        """
        for tag in self.ledger.unsound():
            self._note_damage(tag, damaged)
            self.ledger.names(tag.path, None, is_read=False)
        for entry in counting(self.progress, "read tags", self._new_entries(damaged)):
            if snapshot is not None:
                snapshot.add(entry)

    def _new_entries(self, damaged: list[CorruptError]) -> Iterator[RefEntry]:
        for batch in self.ledger.unread():
            paths = {numbered(tag.path, tag.latest): tag.path for tag in batch}
            for path in paths.values():
                self.ledger.names(path, None, is_read=False)
            for entry in self.registry.refs.read(paths, damaged):
                self.ledger.names(paths[entry.key], entry.digest)
                yield entry

    def spares(self, damaged: list[CorruptError], snapshot: SnapshotWriter | None = None) -> Kept:
        """Which artifacts a collection leaves alone because of their names, or of the names of links above them.

        A tag that cannot be read may name any artifact that it ever named, or one that nothing else mentions. So while
        tags are damaged, only artifacts are given up that some other, readable tag used to name.

        Args:
            damaged: errors of tags that cannot be read are appended to it.
            snapshot: is given the latest entry of each tag.

        Raises:
            CorruptError: no entry of a tag can be read, so it may name any artifact.
            UnavailableError: the listing lacks an entry that is there.
        """
        self.read(damaged, snapshot)
        # Digests that a tag left a short while ago: they can be restored.
        for entry in self.registry.refs.read(self.ledger.left(), damaged):
            if entry.digest is not None:
                self.ledger.add("lost", [entry.digest])
        if not damaged:
            return Kept(self.ledger, self.standing)
        unread: dict[Ref, CorruptError] = {ref_of(error.key): error for error in damaged}
        for tag in self.ledger.all_tags():
            ref = ref_of(f"{tag.path}/")
            keys = [numbered(tag.path, n) for n in in_ranges(tag.numbers)]
            log = list(self.registry.refs.read(keys, []))
            if not log and ref in unread:
                raise unread[ref]
            named = [entry.digest for entry in log if entry.digest is not None]
            self.ledger.add("lost" if ref in unread else "given_up", named)
        return Kept(self.ledger, self.standing, only_given_up=True)

    def _left(self, folder: Folder, infos: dict[str, ObjectInfo]) -> list[str]:
        # Keys of the entries whose successor is younger than the deadline.
        keys = folder.keys
        return [a for a, later in pairwise(keys) if infos[later].modified > self.deadline]

    def _note_damage(self, tag: Tag, damaged: list[CorruptError]) -> None:
        store = self.registry.store
        folder = Folder(tag.path, in_ranges(tag.numbers), [tag.stray])
        if missing := folder.first_gap():
            if store.head(missing) is not None:
                raise not_listed(store.url, missing)
            damaged.append(folder.gap_error(store.url, missing))
            return
        damaged.append(folder.stray_error(store.url))

    def _vanished(self, key: str) -> UnavailableError:
        return UnavailableError(
            f"listings of {self.registry.url} disagree: {key} was listed a moment ago and is not any more, "
            "though entries of tags are never deleted",
            hint=ASK,
        )


def _tag(folder: Folder, infos: dict[str, ObjectInfo]) -> Tag:
    stamp = ""
    if folder.latest:
        latest = infos[folder.latest_key]
        stamp = f"{folder.latest}/{latest.size}/{latest.modified.isoformat()}"
    return Tag(
        folder.path,
        ranges(folder.numbers),
        folder.latest,
        len(folder.numbers),
        stamp,
        stray=folder.strays[0] if folder.strays else "",
        sound=bool(folder.numbers) and not folder.first_gap() and not folder.strays,
    )
