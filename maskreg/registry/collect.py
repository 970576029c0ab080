"""Garbage collection: deletes artifacts without a name, and files that interrupted work left behind.

The protocol with push is described in :mod:`maskreg.registry.settling`. Collecting goes in batches::

    candidates   artifacts without a live ref, all objects older than the grace period
    per batch    write a marker for each; list refs once more
      per artifact   named now, or its listing changed?    spare it
                     otherwise                             delete the manifest, then the objects, then the marker

The manifest goes first: without it every reader takes the rest for an interrupted push. The marker stays until
everything is gone, even if the process dies, so that a push of the same artifact waits or sees the holes.

An unreadable ref entry may name any artifact that its tag ever named, or one that nothing else mentions. So while
entries are damaged, only artifacts are deleted that some other, readable tag used to name.
"""

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
from maskreg.result import Result
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.entry import ref_of
from maskreg.store.keys import TEMPORARY

GRACE = timedelta(days=7)
"""How long garbage collection leaves artifacts alone that no name points to."""

_LONGEST_GRACE = timedelta(days=36_500)
"""Older than any artifact; longer periods would end before the first year that a date can have."""

_BATCH = 256
_DELETE_AT_ONCE = 1000
_INCOMING = INCOMING.rstrip("/")
_DEBRIS = ("staging", TEMPORARY, _INCOMING, "analysis")
_FOREIGN_LIFE = timedelta(days=1)
# Only the age of its files tells whether a process on another machine is alive.


@dataclass(frozen=True)
class Collected:
    """An artifact that was deleted, or would be."""

    digest: Digest
    objects: int
    bytes: int


@dataclass(frozen=True)
class Garbage(Result):
    """What a garbage collection deleted, or would delete.

    Attributes:
        collected: artifacts that no name pointed to.
        spared: artifacts that were pushed, pulled or named during the collection.
        debris_files: files that interrupted work left in a local registry.
        debris_bytes: their size.
        dry_run: nothing was deleted.
        damaged: tags whose latest entry cannot be read; the artifacts that they may name are kept.
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
        return sum(item.objects for item in self.collected)

    @property
    def bytes(self) -> int:
        """Bytes of the collected artifacts and of the debris."""
        return sum(item.bytes for item in self.collected) + self.debris_bytes

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {**super().to_json(), "bytes": self.bytes}


def collect(
    registry: Registry, grace: timedelta = GRACE, *, dry_run: bool = False, progress: Progress = SILENT
) -> Garbage:
    """Delete artifacts that no live ref points to and that are older than the grace period, by the store's clock.

    The catalog is not consulted: the store is the truth.

    Args:
        registry: where to delete.
        grace: spare artifacts that were written, or lost their name, less than this ago.
        dry_run: only report.
        progress: progress callback, in deleted bytes.

    Raises:
        CorruptError: no entry of a tag can be read, so it may name any artifact.
    """
    registry.check_format()
    store = registry.store
    # Without a grace period ages are not compared: clocks differ, and those of buckets tick in whole seconds.
    deadline = store.clock() - min(grace, _LONGEST_GRACE) if grace else datetime.max.replace(tzinfo=UTC)
    damaged: list[CorruptError] = []
    candidates = _candidates(registry, _spared_by_name(registry, deadline, damaged), deadline)
    collected: list[Collected] = []
    spared: list[Digest] = []
    if dry_run:
        collected = [_count(digest, objects) for digest, objects in candidates]
    else:
        progress.start("collect", 0)
        store.delete([i.key for i in store.list(MARKERS) if i.modified < store.clock() - MARKER_LIFE])
        for batch in _batches(candidates):
            deleted = _collect_batch(registry, dict(batch), deadline, damaged, progress)
            collected += deleted
            spared += [digest for digest, _ in batch if digest not in {item.digest for item in deleted}]
    files, size = _sweep(registry.root, grace, dry_run) if registry.root else (0, 0)
    return Garbage(tuple(collected), tuple(spared), files, size, dry_run, tuple(damaged))


def _candidates(
    registry: Registry, is_spared: Callable[[Digest], bool], deadline: datetime
) -> Iterator[tuple[Digest, dict[str, ObjectInfo]]]:
    for name, infos in groupby(registry.store.list(ARTIFACTS), lambda info: info.key.split("/")[2]):
        try:
            digest = Digest(f"sha256:{name}")
        except ValueError:
            continue  # not an artifact
        if is_spared(digest):
            continue
        prefix = artifact_prefix(digest)
        objects = {info.key.removeprefix(prefix): info for info in infos}
        if _is_old(objects, deadline):
            yield digest, objects


def _spared_by_name(registry: Registry, deadline: datetime, damaged: list[CorruptError]) -> Callable[[Digest], bool]:
    kept = _named(registry, deadline, damaged)
    if not damaged:
        return kept.__contains__
    unread = {ref_of(error.key): error for error in damaged}
    abandoned: set[Digest] = set()
    for ref in registry.refs.tags():
        log = registry.refs.history(ref, [])
        if not log and ref in unread:
            raise unread[ref]
        (kept if ref in unread else abandoned).update(entry.digest for entry in log if entry.digest)
    return lambda digest: digest in kept or digest not in abandoned


def _named(registry: Registry, deadline: datetime, damaged: list[CorruptError]) -> set[Digest]:
    # The grace period also runs from the removal of a name, so that it can be restored.
    kept: set[Digest] = set()
    for head in registry.refs.heads(damaged):
        if head.digest is not None:
            kept.add(head.digest)
        if head.at > deadline and head.n > 1:
            log = registry.refs.history(head.ref, damaged)
            kept.update(old.digest for old, new in pairwise(log) if new.at > deadline and old.digest)
    return kept


def _is_old(objects: dict[str, ObjectInfo], deadline: datetime) -> bool:
    return all(info.modified <= deadline for info in objects.values())


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
    # Half its life: deleting must end long before pushes may take the marker for a dead one.
    stop_at = time.time() + MARKER_LIFE.total_seconds() / 2
    collected: list[Collected] = []
    try:
        for marker in marked.values():
            store.put(marker, note)
        damaged: list[CorruptError] = []
        live = registry.refs.digests(damaged)
        if fresh := [error for error in damaged if error.key not in {earlier.key for earlier in known}]:
            raise fresh[0]
        for digest, before in candidates.items():
            objects = listing(store, digest)
            if digest in live or objects != before or not _is_old(objects, deadline):
                continue
            # From here on the marker stays until everything is gone, even if this process dies.
            marker = marked.pop(digest)
            if _delete(store, digest, objects, stop_at):
                store.delete([marker])
                collected.append(_count(digest, objects))
                registry.index.forget(digest, objects=collected[-1].objects, size=collected[-1].bytes, by=registry.by)
                progress.advance(collected[-1].bytes)
    finally:
        store.delete(marked.values())
    return collected


def _delete(store: Store, digest: Digest, objects: Iterable[str], stop_at: float) -> bool:
    prefix = artifact_prefix(digest)
    keys = iter([prefix + key for key in objects if key != MANIFEST])
    chunk = [prefix + MANIFEST]
    while chunk:
        if time.time() > stop_at:
            return False
        store.delete(chunk)
        chunk = list(islice(keys, _DELETE_AT_ONCE))
    return True


def _count(digest: Digest, objects: dict[str, ObjectInfo]) -> Collected:
    return Collected(digest, len(objects), sum(info.size for info in objects.values()))


def _batches(
    candidates: Iterator[tuple[Digest, dict[str, ObjectInfo]]],
) -> Iterator[list[tuple[Digest, dict[str, ObjectInfo]]]]:
    # The listing behind the candidates must not be read further while objects are deleted under it.
    while batch := list(islice(candidates, _BATCH)):
        yield batch


def _sweep(root: Path, grace: timedelta, dry_run: bool) -> tuple[int, int]:
    now = time.time()
    files = size = 0
    for path in _leftovers(root):
        contents = _files(path)
        pid = _local_pid(path)
        oldest = now - (grace if pid is not None else max(grace, _FOREIGN_LIFE)).total_seconds()
        if pid is not None and is_alive(pid):
            continue
        if any(s.st_mtime > oldest for s in contents) or _modified(path) > oldest or _completes_a_part(root, path):
            continue
        files += len(contents)
        size += sum(status.st_size for status in contents)
        if not dry_run:
            _remove(path)
    return files, size


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        if path.parent.parent.name == _INCOMING:
            with suppress(OSError):
                path.parent.rmdir()
    else:
        with suppress(OSError):
            path.unlink()


def _leftovers(root: Path) -> Iterator[Path]:
    for name in _DEBRIS:
        folder = root / name
        if folder.is_dir() and not folder.is_symlink():
            for path in sorted(folder.iterdir()):
                # incoming/<hex>/<visit>: one level deeper than the others.
                deeper = name == _INCOMING and path.is_dir() and not path.is_symlink()
                yield from sorted(path.iterdir()) if deeper else [path]


def _completes_a_part(root: Path, path: Path) -> bool:
    # The pull that moved these died half way. As long as they wait, readers take the part for absent, not for damaged.
    if path.parent.parent != root / _INCOMING:
        return False
    artifact = root / ARTIFACTS / path.parent.name
    if not (artifact / MANIFEST).is_file():
        return False
    present = {file.relative_to(artifact).as_posix() for file in artifact.rglob("*") if file.is_file()}
    waiting = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    begun = {part_of(key) for key in present - {MANIFEST}} - {""}
    return any(part_of(key) in begun for key in waiting - present)


def _files(path: Path) -> list[os.stat_result]:
    files = [path] if not path.is_dir() else [p for p in path.rglob("*") if not p.is_dir() or p.is_symlink()]
    statuses = []
    for file in files:
        with suppress(OSError):
            statuses.append(file.lstat())
    return statuses


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def _local_pid(path: Path) -> int | None:
    # The name is HOST-PID-NONCE; None for another machine's, and for a name without a process.
    head, _, _ = path.name.rpartition("-")
    host, _, pid = head.rpartition("-")
    return int(pid) if host == socket.gethostname() and pid.isascii() and pid.isdigit() else None
