"""Garbage collection: artifacts that no name points to, and what interrupted work left behind."""

from __future__ import annotations

import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, pairwise
from pathlib import Path

from maskreg.artifact.layout import ARTIFACTS, INCOMING, MANIFEST, artifact_prefix, part_of
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.disk import is_alive
from maskreg.document import canonical
from maskreg.errors import CorruptError
from maskreg.progress import SILENT, Progress
from maskreg.registry.registry import Registry
from maskreg.registry.settling import MARKER_LIFE, MARKERS, marker_prefix
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.entry import ref_of
from maskreg.store.keys import TEMPORARY

GRACE = timedelta(days=7)
"""How long garbage collection leaves artifacts alone that no name points to."""

_BATCH = 256
_DELETE_AT_ONCE = 1000
_INCOMING = INCOMING.rstrip("/")
_DEBRIS = ("staging", TEMPORARY, _INCOMING, "analysis")
_FOREIGN_LIFE = timedelta(days=1)
# Nobody can see from here whether a process on another machine still works: its files are its sign of life.


@dataclass(frozen=True)
class Collected:
    """An artifact that was deleted, or would be."""

    digest: Digest
    objects: int
    bytes: int


@dataclass(frozen=True)
class GcReport:
    """What a collection did, or would do.

    Attributes:
        collected: artifacts that no name pointed to.
        spared: artifacts that were pushed, pulled or named while the collection looked at them.
        debris_files, debris_bytes: left behind by interrupted work in a local registry.
        dry_run: nothing was deleted.
        damaged: latest entries of tags that cannot be read; whatever they may name was left alone.
    """

    collected: tuple[Collected, ...]
    spared: tuple[Digest, ...]
    debris_files: int
    debris_bytes: int
    dry_run: bool
    damaged: tuple[CorruptError, ...] = ()

    @property
    def objects(self) -> int:
        """Stored objects of the collected artifacts."""
        return sum(gone.objects for gone in self.collected)

    @property
    def bytes(self) -> int:
        """Bytes of the collected artifacts and of the debris."""
        return sum(gone.bytes for gone in self.collected) + self.debris_bytes


def collect(
    registry: Registry, grace: timedelta = GRACE, *, dry_run: bool = False, progress: Progress = SILENT
) -> GcReport:
    """Delete what no live ref points to and what is older than the grace period, by the store's clock.

    What a catalog knows is not asked: the store is the truth. See ``settling`` for the protocol.

    Args:
        registry: where to delete.
        grace: leave alone what was written, or lost its name, less than this ago.
        dry_run: only report.
        progress: progress callback, in deleted bytes.

    Raises:
        CorruptError: a tag of which no entry can be read, so that nothing is known of what it names.
    """
    registry.check_format()
    store = registry.store
    # Without a grace period no age counts: clocks differ, and those of buckets tick in whole seconds.
    deadline = store.clock() - grace if grace else datetime.max.replace(tzinfo=UTC)
    damaged: list[CorruptError] = []
    candidates = _candidates(registry, _spared_by_name(registry, deadline, damaged), deadline)
    collected: list[Collected] = []
    spared: list[Digest] = []
    if dry_run:
        collected = [_count(digest, here) for digest, here in candidates]
    else:
        progress.start("collect", 0)
        store.delete([i.key for i in store.list(MARKERS) if i.modified < store.clock() - MARKER_LIFE])
        for batch in _batches(candidates):
            done = _collect_batch(registry, dict(batch), deadline, damaged, progress)
            collected += done
            spared += [digest for digest, _ in batch if digest not in {gone.digest for gone in done}]
    files, size = _sweep(registry.root, grace, dry_run) if registry.root else (0, 0)
    return GcReport(tuple(collected), tuple(spared), files, size, dry_run, tuple(damaged))


def _candidates(
    registry: Registry, is_spared: Callable[[Digest], bool], deadline: datetime
) -> Iterator[tuple[Digest, dict[str, ObjectInfo]]]:
    for name, infos in groupby(registry.store.list(ARTIFACTS), lambda info: info.key.split("/")[2]):
        try:
            digest = Digest(f"sha256:{name}")
        except ValueError:
            continue  # nothing of ours
        if is_spared(digest):
            continue
        prefix = artifact_prefix(digest)
        here = {info.key.removeprefix(prefix): info for info in infos}
        if _is_old(here, deadline):
            yield digest, here


def _spared_by_name(registry: Registry, deadline: datetime, damaged: list[CorruptError]) -> Callable[[Digest], bool]:
    kept = _named(registry, deadline, damaged)
    if not damaged:
        return kept.__contains__
    # An entry that cannot be read may name whatever its tag ever named, and whatever nobody else is known to have
    # named; what goes is only what another tag gave up.
    unread = {ref_of(error.key): error for error in damaged}
    given_up: set[Digest] = set()
    for ref in registry.refs.tags():
        log = registry.refs.history(ref, [])
        if not log and ref in unread:
            raise unread[ref]
        (kept if ref in unread else given_up).update(entry.digest for entry in log if entry.digest)
    return lambda digest: digest in kept or digest not in given_up


def _named(registry: Registry, deadline: datetime, damaged: list[CorruptError]) -> set[Digest]:
    # The grace period also runs from the moment a name was taken away: until then it can be restored.
    kept: set[Digest] = set()
    for head in registry.refs.heads(damaged):
        if head.digest is not None:
            kept.add(head.digest)
        if head.at > deadline and head.n > 1:
            log = registry.refs.history(head.ref, damaged)
            kept.update(old.digest for old, new in pairwise(log) if new.at > deadline and old.digest)
    return kept


def _is_old(here: dict[str, ObjectInfo], deadline: datetime) -> bool:
    return all(info.modified <= deadline for info in here.values())


def _collect_batch(
    registry: Registry,
    candidates: dict[Digest, dict[str, ObjectInfo]],
    deadline: datetime,
    known: list[CorruptError],
    progress: Progress,
) -> list[Collected]:
    store = registry.store
    nonce = uuid.uuid4().hex
    marked = {digest: marker_prefix(digest) + nonce for digest in candidates}
    note = canonical({"by": registry.by, "run": nonce})
    # Half its life: a marker that is about to expire protects nobody from what is still being deleted.
    stop_at = time.time() + MARKER_LIFE.total_seconds() / 2
    collected: list[Collected] = []
    try:
        for marker in marked.values():
            store.put(marker, note)
        damaged: list[CorruptError] = []
        live = registry.refs.digests(damaged)
        if fresh := [error for error in damaged if error.key not in {other.key for other in known}]:
            raise fresh[0]
        for digest, before in candidates.items():
            here = listing(store, digest)
            if digest in live or here != before or not _is_old(here, deadline):
                continue
            # From here on the marker stays until everything is gone, whatever happens to this process.
            marker = marked.pop(digest)
            if _delete(store, digest, here, stop_at):
                store.delete([marker])
                collected.append(_count(digest, here))
                registry.index.forget(digest, objects=collected[-1].objects, size=collected[-1].bytes, by=registry.by)
                progress.advance(collected[-1].bytes)
    finally:
        store.delete(marked.values())
    return collected


def _delete(store: Store, digest: Digest, here: Iterable[str], stop_at: float) -> bool:
    # The manifest first: without it, what is left is an interrupted push to everybody.
    prefix = artifact_prefix(digest)
    keys = iter([prefix + key for key in here if key != MANIFEST])
    chunk = [prefix + MANIFEST]
    while chunk:
        if time.time() > stop_at:
            return False
        store.delete(chunk)
        chunk = list(islice(keys, _DELETE_AT_ONCE))
    return True


def _count(digest: Digest, here: dict[str, ObjectInfo]) -> Collected:
    return Collected(digest, len(here), sum(info.size for info in here.values()))


def _batches(
    candidates: Iterator[tuple[Digest, dict[str, ObjectInfo]]],
) -> Iterator[list[tuple[Digest, dict[str, ObjectInfo]]]]:
    # The listing behind the candidates must not go on while they are deleted from under it.
    while batch := list(islice(candidates, _BATCH)):
        yield batch


def _sweep(root: Path, grace: timedelta, dry_run: bool) -> tuple[int, int]:
    now = time.time()
    files = size = 0
    for place in _pieces(root):
        found = _files(place)
        pid = _pid_here(place)
        oldest = now - (grace if pid is not None else max(grace, _FOREIGN_LIFE)).total_seconds()
        if pid is not None and is_alive(pid):
            continue
        if any(status.st_mtime > oldest for status in found) or _age(place) > oldest or _completes_a_part(root, place):
            continue
        files += len(found)
        size += sum(status.st_size for status in found)
        if dry_run:
            continue
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
            if place.parent.parent.name == _INCOMING:
                with suppress(OSError):
                    place.parent.rmdir()
        else:
            with suppress(OSError):
                place.unlink()
    return files, size


def _pieces(root: Path) -> Iterator[Path]:
    for name in _DEBRIS:
        folder = root / name
        if folder.is_dir() and not folder.is_symlink():
            for path in sorted(folder.iterdir()):
                # Incoming objects lie one level deeper, by who brings them.
                deeper = name == _INCOMING and path.is_dir() and not path.is_symlink()
                yield from sorted(path.iterdir()) if deeper else [path]


def _completes_a_part(root: Path, place: Path) -> bool:
    # Who moved these died in the middle: while they wait, readers take the part for absent, and not for damaged.
    if place.parent.parent != root / _INCOMING:
        return False
    final = root / ARTIFACTS / place.parent.name
    if not (final / MANIFEST).is_file():
        return False
    here = {path.relative_to(final).as_posix() for path in final.rglob("*") if path.is_file()}
    waiting = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    begun = {part_of(key) for key in here - {MANIFEST}} - {""}
    return any(part_of(key) in begun for key in waiting - here)


def _files(place: Path) -> list[os.stat_result]:
    paths = [place] if not place.is_dir() else [p for p in place.rglob("*") if not p.is_dir() or p.is_symlink()]
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(path.lstat())
    return found


def _age(place: Path) -> float:
    with suppress(OSError):
        return place.lstat().st_mtime
    return 0.0


def _pid_here(place: Path) -> int | None:
    # Named HOST-PID-NONCE by whoever writes it; None when that is another machine, or nobody says.
    head, _, _ = place.name.rpartition("-")
    host, _, pid = head.rpartition("-")
    return int(pid) if host == socket.gethostname() and pid.isascii() and pid.isdigit() else None
