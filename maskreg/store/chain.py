"""What makes a log of entries one history: where each lies, how they are numbered, and how they follow one another.

An entry that a listing leaves out, and that is there when it is read directly, makes the listing stale; nothing is
damaged::

    for turn in looks():          at once, then after 0.25, 0.5 and 0.75 s
        list; nothing missing?    return it
        missing, and not there?   damage, or something deleted it: the caller decides
    raise not_listed(url, key)    UnavailableError
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import unquote, urlsplit

from maskreg.digest import Digest
from maskreg.errors import CorruptError, ImmutableTagError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.store.base import ObjectInfo
from maskreg.store.entry import REFS, RefEntry, numbered

ASK = "run the same command again in a minute; if it fails again, ask the operator of the store"
"""The next step where a store contradicts itself."""

_LOOKS = 4
PAUSE_S = 0.25
"""Before the second look; longer before each one after it."""


def looks() -> Iterator[int]:
    """Turns at a listing, numbered from 0, with a longer pause before each."""
    for turn in range(_LOOKS):
        if turn:
            time.sleep(PAUSE_S * turn)
        yield turn


def not_listed(url: str, key: str, consequence: str = "") -> UnavailableError:
    """The error for a store that holds an object and does not list it."""
    return UnavailableError(
        f"{url} holds {key} and does not list it: its listing is stale, or a proxy answers for it"
        + (f"; {consequence}" if consequence else ""),
        hint=ASK,
    )


_FILE = re.compile(r"([0-9]{20})\.json")
_TAG_DEPTH = REFS.count("/") + 3
_SHOWN_LATER = 3


@dataclass
class Folder:
    """What a listing shows of one tag.

    Attributes:
        path: its folder, such as ``refs/team/qwen3-8b-opd/v3``.
        entries: its entries by number, ascending.
        strays: keys in it that no entry has.
    """

    path: str
    entries: dict[int, ObjectInfo] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)

    @property
    def latest(self) -> int:
        """Number of the latest entry; 0 when there is none."""
        return max(self.entries, default=0)

    @property
    def keys(self) -> list[str]:
        """Keys of the entries, the oldest first."""
        return [info.key for info in self.entries.values()]

    @property
    def latest_key(self) -> str:
        """Key of the latest entry, of which there has to be one."""
        return numbered(self.path, self.latest)

    def first_gap(self) -> str:
        """Key of the first entry that is missing before a later one; empty when none is."""
        missing = next((n for n in range(1, self.latest) if n not in self.entries), 0)
        return numbered(self.path, missing) if missing else ""

    def stray_error(self, url: str) -> CorruptError:
        """The damage that the first stray is."""
        return CorruptError(
            self.strays[0],
            f"not an entry of a tag: entries are called 00000000000000000001.json to {LIMITS.ref_entries:020d}.json",
            hint=f"look at it, then remove it: {removal(url, self.strays[0])}",
        )

    def gap_error(self, url: str, key: str) -> CorruptError:
        """The damage that a missing entry is."""
        later = [k for k in self.keys if k > key]
        return CorruptError(
            key,
            f"this entry of the tag is missing, and entry {self.latest} is there",
            hint=f"restore it from a copy, or remove what follows it: {removal(url, *later[:_SHOWN_LATER])}",
        )


def each_folder(listing: Iterable[ObjectInfo]) -> Iterator[Folder]:
    """The tags that a listing of ``refs/``, or of a part of it, shows, one after another in the order of their keys.

    Keys of a tag stand together in a listing, so only one tag is in memory. Names that begin with a dot are left alone:
    file systems and desktops leave such files anywhere, and no reader takes one for an entry.
    """
    for segments, infos in groupby(listing, lambda info: info.key.split("/")[:_TAG_DEPTH]):
        folder = Folder("/".join(segments))
        for info in infos:
            match = _FILE.fullmatch(info.key.removeprefix(f"{folder.path}/"))
            if match and 1 <= int(match[1]) <= LIMITS.ref_entries:
                folder.entries[int(match[1])] = info
            elif not info.key.rpartition("/")[2].startswith("."):
                folder.strays.append(info.key)
        # An object in the place of a tag's folder, such as a link to itself, is a stray of that tag.
        if len(segments) == _TAG_DEPTH and (folder.entries or folder.strays):
            yield folder


def link_fault(before: RefEntry, entry: RefEntry) -> str:
    """Why ``entry`` cannot be the one after ``before``, for a message; empty when it can."""
    if entry.previous != before.id:
        return f"it does not follow from entry {before.n} as that stands: one of the two was replaced"
    if entry.digest is None and entry.removed != before.last_digest:
        return f"it says that it removed another artifact than entry {before.n} names"
    if before.immutable and not entry.immutable:
        return f"entry {before.n} made the tag immutable, and this one does not keep it so"
    if before.immutable and entry.last_digest != before.last_digest:
        was, now = (e.last_digest.short if e.last_digest else "nothing" for e in (before, entry))
        return f"{entry.by} moved the immutable tag from {was} to {now} at {entry.at:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def check_link(before: RefEntry, entry: RefEntry, damaged: list[CorruptError] | None = None) -> None:
    """Refuse an entry that cannot be the one after ``before``; with ``damaged`` the error is appended to it instead."""
    if not (fault := link_fault(before, entry)):
        return
    error = CorruptError(entry.key, fault, hint=f"compare entries {before.n} and {entry.n} with a copy of the log")
    if damaged is None:
        raise error
    damaged.append(error)


def check_movable(after: RefEntry | None, digest: Digest | None, *, hint: str = "", **facts: object) -> None:
    """Refuse to move an immutable tag to another artifact; deleting it is allowed."""
    if after is None or not after.immutable or digest is None or digest == after.last_digest:
        return
    raise _immovable(after, digest.short, hint, **facts)


def check_free(after: RefEntry) -> None:
    """Refuse an immutable tag before an artifact is made for it."""
    if after.immutable:
        raise _immovable(after, "an artifact that is still to be made", "")


def _immovable(after: RefEntry, to: str, hint: str, **facts: object) -> ImmutableTagError:
    was = after.last_digest.short if after.last_digest else "nothing"
    entry = f"entry {after.n} by {after.by} of {after.at:%Y-%m-%d %H:%M:%S} UTC"
    state = f"was at {was} until {entry} removed it" if after.deleted else f"is at {was} since {entry}"
    return ImmutableTagError(
        f"{after.ref} is immutable: it {state}, and cannot move to {to}",
        hint=hint or f"choose another tag than {after.tag}",
        **facts,
    )


def removal(url: str, *keys: str) -> str:
    """A shell command, for people to read before they run it, that removes objects of a store; or who can do that."""
    parts = urlsplit(url)
    if parts.scheme in ("https", "http"):
        return f"ask the operator of {url} to remove {' and '.join(keys)}"
    if parts.scheme == "s3":
        return " && ".join(f"aws s3 rm {shlex.quote(f'{url}/{key}')}" for key in keys)
    return shlex.join(["rm", *(f"{unquote(parts.path)}/{key}" for key in keys)])
