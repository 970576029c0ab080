"""Files that interrupted work left behind in a store that is a directory."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from maskreg.artifact.layout import ARTIFACTS, INCOMING, MANIFEST, part_of
from maskreg.disk import is_alive
from maskreg.store.base import TEMPORARY

_INCOMING = INCOMING.rstrip("/")
LOCAL = ("staging", TEMPORARY, _INCOMING, "analysis")
"""Folders of a local registry in which work leaves something when it is interrupted."""

SHARED = (TEMPORARY,)
"""The same of a store that is a directory, but no local registry."""

_FOREIGN_LIFE = timedelta(days=1)
# Only the age of its files tells whether a process on another machine is alive.


def sweep(root: Path, folders: tuple[str, ...], grace: timedelta, *, dry_run: bool) -> tuple[int, int]:
    """Delete what processes that ended left behind longer than the grace period ago.

    Returns:
        How many files, and their bytes.
    """
    now = time.time()
    files = size = 0
    for path in _leftovers(root, folders):
        pid = _local_pid(path)
        # Before its files are listed, which a running process moves meanwhile.
        if pid is not None and is_alive(pid):
            continue
        contents = _files(path)
        oldest = now - (grace if pid is not None else max(grace, _FOREIGN_LIFE)).total_seconds()
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


def _leftovers(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    for name in folders:
        folder = root / name
        if folder.is_dir() and not folder.is_symlink():
            for path in sorted(folder.iterdir()):
                # incoming/<hex>/<visit>: one level deeper than the others.
                deeper = name == _INCOMING and path.is_dir() and not path.is_symlink()
                with suppress(FileNotFoundError):  # a pull that ends removes it
                    yield from sorted(path.iterdir()) if deeper else [path]


def _completes_a_part(root: Path, path: Path) -> bool:
    # The pull that moved these died half way. As long as they wait, readers take the part for absent, not for damaged.
    if path.parent.parent != root / _INCOMING:
        return False
    artifact = root / ARTIFACTS / path.parent.name
    if not (artifact / MANIFEST).is_file():
        return False
    present = {file.relative_to(artifact).as_posix() for file in _inside(artifact) if file.is_file()}
    waiting = {file.relative_to(path).as_posix() for file in _inside(path) if file.is_file()}
    begun = {part_of(key) for key in present - {MANIFEST}} - {""}
    return any(part_of(key) in begun for key in waiting - present)


def _inside(path: Path) -> list[Path]:
    # Unlike rglob, walk passes over a folder that is removed meanwhile.
    return [Path(folder, name) for folder, folders, files in os.walk(path) for name in (*folders, *files)]


def _files(path: Path) -> list[os.stat_result]:
    inside = _inside(path) if not path.is_symlink() and path.is_dir() else [path]
    files = [file for file in inside if not file.is_dir() or file.is_symlink()]
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
