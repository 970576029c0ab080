"""Walking over the log: every entry of every tag is read and checked, a few tags in memory at a time.

Wrong is an entry that cannot be read, is missing, or does not follow from the one before it, an object that is no
entry, and a move of an immutable tag.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from maskreg.errors import CorruptError
from maskreg.store.base import ObjectInfo
from maskreg.store.chain import Folder, check_link, each_folder
from maskreg.store.entry import RefEntry

_PATH_SEGMENTS = 4


Skip = Callable[[Folder, bytes], bool]
"""Whether a tag need not be read, by its folder and the hash of its listing."""


def never(folder: Folder, listing: bytes) -> bool:
    """Read every tag."""
    return False


def folders_with_listing(listing: Iterable[ObjectInfo]) -> Iterator[tuple[Folder, dict[str, ObjectInfo]]]:
    """The tags that a listing of ``refs/`` shows, each with what is listed in its folder, by key."""
    for _, group in groupby(listing, lambda info: info.key.split("/")[:_PATH_SEGMENTS]):
        infos = {info.key: info for info in group}
        for folder in each_folder(infos.values()):
            yield folder, infos


def listing_hash(infos: Iterable[ObjectInfo]) -> bytes:
    """Hash of names, sizes and times of objects in key order: any change shows."""
    state = hashlib.sha256()
    for info in infos:
        state.update(f"{info.key}\n{info.size}\n{info.modified.timestamp()}\n".encode())
    return state.digest()


@dataclass
class Walked:
    """A tag whose entries were read.

    Attributes:
        folder: its keys, as they were listed.
        listing: hash of the listing.
        latest: its latest entry; None when that cannot be read, or the folder has a gap or something else in it.
        is_sound: whether nothing is wrong with it.
    """

    folder: Folder
    listing: bytes
    latest: RefEntry | None = None
    is_sound: bool = True


def walk(
    listing: Iterable[ObjectInfo],
    check: Callable[[Folder], bool],
    read: Callable[[Iterable[str]], Iterator[RefEntry]],
    damaged: list[CorruptError],
    skip: Skip,
) -> Iterator[Walked]:
    """Read every entry of every tag, and hold it against the one before.

    Args:
        listing: of ``refs/``.
        check: whether a folder has all numbers and nothing else; appends to ``damaged`` what is wrong.
        read: reads entries by their keys, in order, and appends to ``damaged`` those that cannot be read.
        damaged: everything that is wrong is appended to it.
        skip: whether a tag need not be read, by its folder and the hash of its listing.

    Yields:
        Each tag that was not skipped, in the order of their keys.
    """
    waiting: deque[tuple[Walked, bool]] = deque()
    faulty: set[str] = set()
    seen = len(damaged)

    def keys() -> Iterator[str]:
        for folder, infos in folders_with_listing(listing):
            hashed = listing_hash(infos.values())
            if not skip(folder, hashed):
                waiting.append((Walked(folder, hashed), check(folder)))
                yield from folder.keys

    def done() -> Walked:
        nonlocal seen
        faulty.update("/".join(error.key.split("/")[:_PATH_SEGMENTS]) for error in damaged[seen:])
        seen = len(damaged)
        walked, is_whole = waiting.popleft()
        walked.is_sound = is_whole and walked.folder.path not in faulty
        if not is_whole or (walked.latest is not None and walked.latest.n != walked.folder.latest):
            walked.latest = None
        return walked

    before: RefEntry | None = None
    for entry in read(keys()):
        while not entry.key.startswith(f"{waiting[0][0].folder.path}/"):
            yield done()
        if before is not None and (before.ref, before.n + 1) == (entry.ref, entry.n):
            check_link(before, entry, damaged)
        waiting[0][0].latest = before = entry
    while waiting:
        yield done()
