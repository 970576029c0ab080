"""Which artifacts have a name, by a listing of the ref log that is taken again and again and compared each time.

The log only grows: no entry is ever replaced or deleted. So what a listing once had, every later one has too, and a
listing that lacks it is wrong (a cache, a proxy, a rule that deletes). Collecting by it would delete what it hides::

    look    list refs/; an entry that an earlier look had is not listed?  UnavailableError
    live    the digest in the last entry of each tag, read once per entry: entries do not change

For example, of 10,000 tags 3 move between two looks: the second one reads 3 entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from maskreg.digest import Digest
from maskreg.errors import CorruptError, UnavailableError
from maskreg.ref import Ref
from maskreg.registry.garbage.standing import Kept, Standing
from maskreg.registry.registry import Registry
from maskreg.store.base import ObjectInfo
from maskreg.store.chain import Folder, folders
from maskreg.store.entry import REFS, ref_of
from maskreg.store.listing import ASK, not_listed


@dataclass
class Census:
    """The tags of a registry as its listings show them.

    Attributes:
        registry: whose.
        tags: what the last look showed of each, by folder.
        standing: which artifacts stand on which.
    """

    registry: Registry
    tags: dict[str, Folder] = field(default_factory=dict)
    standing: Standing = field(init=False, repr=False)
    _infos: dict[str, ObjectInfo] = field(default_factory=dict)
    _heads: dict[str, tuple[ObjectInfo, Digest | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.standing = Standing(self.registry.store)

    @property
    def entries(self) -> int:
        """How many entries all tags have."""
        return sum(len(folder.numbers) for folder in self.tags.values())

    def look(self) -> None:
        """List the log again.

        Raises:
            UnavailableError: an entry that was listed before is not any more.
        """
        infos = {info.key: info for info in self.registry.store.list(REFS)}
        for folder in self.tags.values():
            for key in folder.keys:
                if key not in infos:
                    raise UnavailableError(
                        f"listings of {self.registry.url} disagree: {key} was listed a moment ago and is not any "
                        "more, though entries of tags are never deleted",
                        hint=ASK,
                    )
        self._infos, self.tags = infos, folders(infos.values())

    def live(self, damaged: list[CorruptError]) -> set[Digest]:
        """Digests that some tag points to.

        Args:
            damaged: errors of tags that cannot be read are appended to it.

        Raises:
            UnavailableError: the listing lacks an entry that is there.
        """
        latest = [tag.keys[-1] for _, tag in sorted(self.tags.items()) if self._is_sound(tag, damaged)]
        heads = {key: self._heads[key] for key in latest if self._heads.get(key, (None,))[0] == self._infos[key]}
        for entry in self.registry.refs.read([key for key in latest if key not in heads], damaged):
            heads[entry.key] = self._infos[entry.key], entry.digest
        self._heads = heads
        return {digest for _, digest in heads.values() if digest is not None}

    def lost_since(self, deadline: datetime, damaged: list[CorruptError]) -> set[Digest]:
        """Digests that a tag left after ``deadline``, by the store's clock: they can be restored for a while.

        Args:
            deadline: aware.
            damaged: errors of entries that cannot be read are appended to it.
        """
        before = [
            earlier
            for folder in self.tags.values()
            for earlier, later in zip(folder.keys, folder.keys[1:], strict=False)
            if self._infos[later].modified > deadline
        ]
        return {entry.digest for entry in self.registry.refs.read(before, damaged) if entry.digest is not None}

    def spares(self, deadline: datetime, damaged: list[CorruptError]) -> Kept:
        """Which artifacts a collection leaves alone because of their names, or of the names of links above them.

        A tag that cannot be read may name any artifact that it ever named, or one that nothing else mentions. So while
        tags are damaged, only artifacts are given up that some other, readable tag used to name.

        Args:
            deadline: as for :meth:`lost_since`.
            damaged: errors of tags that cannot be read are appended to it.

        Raises:
            CorruptError: no entry of a tag can be read, so it may name any artifact.
            UnavailableError: the listing lacks an entry that is there.
        """
        kept = self.live(damaged) | self.lost_since(deadline, damaged)
        if not damaged:
            return Kept(kept, self.standing)
        unread: dict[Ref, CorruptError] = {ref_of(error.key): error for error in damaged}
        abandoned: set[Digest] = set()
        for path, folder in self.tags.items():
            ref = ref_of(f"{path}/")
            log = list(self.registry.refs.read(folder.keys, []))
            if not log and ref in unread:
                raise unread[ref]
            (kept if ref in unread else abandoned).update(entry.digest for entry in log if entry.digest is not None)
        return Kept(kept, self.standing, abandoned)

    def _is_sound(self, folder: Folder, damaged: list[CorruptError]) -> bool:
        store = self.registry.store
        if missing := folder.first_gap():
            if store.head(missing) is not None:
                raise not_listed(store.url, missing)
            damaged.append(folder.gap_error(store.url, missing))
        elif folder.strays:
            damaged.append(folder.stray_error(store.url))
        return not missing and not folder.strays
