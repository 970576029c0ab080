"""Which artifacts names keep: by listings of the ref log, which are compared, and by the links below named ones.

The log only grows: no entry is ever replaced or deleted. So what a listing once had, every later one has too, and a
listing that lacks it is wrong (a cache, a proxy, a rule that deletes). Collecting by it would delete what it hides::

    look    list refs/; an entry that an earlier look had is not listed?  UnavailableError
    read    the digest in the latest entry of each tag, once per entry: entries do not change

A reader that is behind needs every link between its weights and the tag, though the tag names the last one alone::

    tag -> link C -> link B -> A        B and A have no name any more, and stay
    tag -> S (what squashing gives)     C, B and A go when the grace period is over

Manifests are read once each, and only if there is something that can be deleted. A damaged one keeps every artifact
whose digest it mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import load_manifest, stands_on
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, NotFoundError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.parallel import ordered
from maskreg.progress import Progress, counting
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.store.chain import ASK, Folder, each_folder, not_listed
from maskreg.store.entry import REFS, numbered, ref_of, tag_hash

_READERS = 16
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_LINK = re.compile(rb'"link"|\\')
"""What a manifest of a link has in it, however it is spelled. To check all of a manifest takes far longer."""


class Names:
    """The tags of a registry as its listings show them, and what they keep.

    Attributes:
        damaged: tags whose latest entry cannot be read, and what is wrong.
        left: artifacts that a tag left after ``deadline``, by the store's clock; they can be restored for a while.
    """

    def __init__(self, registry: Registry, deadline: datetime, progress: Progress) -> None:
        """Nothing is listed yet."""
        self.damaged: dict[Ref, CorruptError] = {}
        self.left: set[Digest] = set()
        self.deadline = deadline
        self._registry, self._progress = registry, progress
        self._latest: dict[str, int] = {}
        self._unsound: dict[str, Folder] = {}
        self._read: dict[str, tuple[int, Digest | None]] = {}
        self._hashes: dict[str, str] = {}
        self._visited: set[Digest] = set()
        self._below: set[Digest] = set()

    def __len__(self) -> int:
        return len(self._latest)

    def look(self) -> None:
        """List the log, and read what is new: an entry that an earlier look showed must still be listed."""
        store, latest, unsound, left = self._registry.store, dict[str, int](), dict[str, Folder](), list[str]()
        listed = counting(self._progress, "list tags", each_folder(store.list(REFS)), total=len(self))
        for folder in listed:
            latest[folder.path] = folder.latest
            if not folder.entries or folder.strays or folder.first_gap():
                unsound[folder.path] = folder
            # A tag left the artifact of one entry when the next entry was written.
            left += [a.key for a, later in pairwise(folder.entries.values()) if later.modified > self.deadline]
        for path, n in self._latest.items():
            if latest.get(path, 0) < n:
                raise self._vanished(numbered(path, n))
        self._latest, self._unsound, self._hashes = latest, unsound, {}
        damaged: list[CorruptError] = [self._fault(folder) for folder in unsound.values()]
        self.left |= {e.digest for e in self._registry.refs.read(left, damaged) if e.digest is not None}
        self._read_latest(damaged)
        self.damaged = {ref_of(error.key): error for error in damaged}

    def latest(self, refs: Iterable[Ref]) -> dict[Ref, int]:
        """Number of the latest entry of each of these tags that the last look showed."""
        return {ref: n for ref in refs if (n := self._latest.get(REFS + ref.path))}

    def by_hash(self, hashed: str) -> tuple[Ref, int] | None:
        """The tag that back references name so, and the number of its latest entry; None when it was not listed."""
        if not self._hashes:
            self._hashes = {tag_hash(ref_of(f"{path}/")): path for path in self._latest}
        path = self._hashes.get(hashed)
        return None if path is None else (ref_of(f"{path}/"), self._latest[path])

    def named(self) -> set[Digest]:
        """Artifacts that a tag points to now, or left a short while ago."""
        return {digest for _, digest in self._read.values() if digest is not None} | self.left

    def carried(self, above: Iterable[Digest]) -> set[Digest]:
        """Artifacts that these stand on, and all that were asked for before, down to the first of each chain."""
        for below in counting(self._progress, "read manifests", self._links(set(above))):
            self._below |= below
        return self._below

    def _links(self, waiting: set[Digest]) -> Iterator[set[Digest]]:
        # Link by link: what the last ones stand on is known when all of them were read.
        while waiting := waiting - self._visited:
            self._visited |= waiting
            yield from ordered(self._stands_on, sorted(waiting), jobs=_READERS)
            waiting = self._below

    def _stands_on(self, digest: Digest) -> set[Digest]:
        try:
            data = self._registry.store.get(artifact_prefix(digest) + MANIFEST, max_bytes=LIMITS.manifest_bytes)
        except NotFoundError:
            return set()  # no reader can follow a chain through what is not there
        if Digest.of(data) == digest and not _LINK.search(data):
            return set()
        try:
            below = stands_on(load_manifest(data, digest))
            return set() if below is None else {below}
        except DataError:
            return {Digest(each) for each in _DIGEST.findall(data.decode("ascii", "replace"))}

    def _read_latest(self, damaged: list[CorruptError]) -> None:
        read = {path: (n, digest) for path, (n, digest) in self._read.items() if self._latest.get(path) == n}
        new = {
            numbered(path, n): path
            for path, n in self._latest.items()
            if path not in read and path not in self._unsound
        }
        for entry in counting(self._progress, "read tags", self._registry.refs.read(new, damaged)):
            read[new[entry.key]] = entry.n, entry.digest
        self._read = read

    def _fault(self, folder: Folder) -> CorruptError:
        store = self._registry.store
        if not (missing := folder.first_gap()):
            return folder.stray_error(store.url)
        if store.head(missing) is not None:
            raise not_listed(store.url, missing)
        return folder.gap_error(store.url, missing)

    def _vanished(self, key: str) -> UnavailableError:
        return UnavailableError(
            f"listings of {self._registry.url} disagree: {key} was listed a moment ago and is not any more, "
            "though entries of tags are never deleted",
            hint=ASK,
        )
