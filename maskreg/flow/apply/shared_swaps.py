"""What a change moves, worked out by one process of a machine and read by the others.

::

    FOLDER/<64 digits of the links>.moved   digest of a table, its length, the table, then the movers of all blocks:
                                            places uint32, codes before uint16, codes after uint16
    FOLDER/lock                             held by the process that works one out, whose id is in it; the others
                                            wait, and read its file

The file of another user could change after it was checked, so the folder and its files are the user's alone to write.
Only :mod:`maskreg.flow.apply.moving` says whether a block that was read fits; where none does, a process decodes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shlex
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from maskreg.digest import Digest
from maskreg.disk import creating, make_root, replacing
from maskreg.document import canonical, decoded
from maskreg.errors import FormatError, UsageError
from maskreg.update.route import Route

PATIENCE_S = 60.0
"""How long to wait for a process that works swaps out, which might have been stopped, before doing so alone."""

_POLL_S = 0.05
_log = logging.getLogger("maskreg")
_NAMES = "[0-9a-f]" * 64 + ".moved"
_MOST_FILES = 2
_DTYPES = torch.int32, torch.int16, torch.int16


class Swaps(NamedTuple):
    """Elements that change, all on one device.

    Attributes:
        at: int32 ``[k]``, their places, ascending; int64 in memory that is not contiguous.
        before: integers of the elements' width, ``[k]``: what they are.
        after: what they become.
    """

    at: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor


SwapsByBlock = dict[tuple[str, int], Swaps]
"""What changes of coded blocks, by tensor and first element."""


@contextmanager
def shared_swaps(folder: Path | None, route: Route, jobs: int) -> Iterator[SwapsByBlock]:
    """Swaps that another process has worked out; without any, an empty table.

    What the caller puts into it is written for the other processes, which wait until then.
    All objects of the links are hashed before the work of another process is used. ``folder``: None shares nothing.

    Raises:
        CorruptError: a link is damaged.
        UsageError: other users own the folder, or can write to it.
        CannotCreateError: the folder cannot be made.
    """
    if folder is None:
        yield {}
        return
    folder = _private(folder)
    links = [[str(delta.artifact.digest), delta.revert] for delta in route.deltas]
    path = folder / f"{Digest.of(canonical(links)).hex}.moved"
    with ExitStack() as held:
        is_locked = _lock(folder / "lock", held)
        swaps = _read(path)
        if swaps:
            held.close()
            for delta in route.deltas:
                delta.artifact.verify_rest(jobs=jobs)
            yield swaps
            return
        yield swaps
        if swaps and is_locked:
            # The caller has what it needs. Where the disk is full, the others work it out as well.
            with suppress(OSError):
                _write(path, swaps)
                for old in sorted(folder.glob(_NAMES), key=lambda each: each.stat().st_mtime_ns)[:-_MOST_FILES]:
                    old.unlink()


def _private(folder: Path) -> Path:
    """Make a folder that only this user can write to, or check one; without links, which could turn elsewhere."""
    with creating(folder):
        make_root(folder)
        folder = folder.resolve()
        if not _is_private(folder.stat()):
            hint = f"choose a folder that is not there yet, or: chmod go-w {shlex.quote(str(folder))}"
            raise UsageError(f"{folder}: other users own it or can write to it, and so to the model", hint=hint)
    return folder


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _lock(path: Path, held: ExitStack) -> bool:
    """Hold a lock, or say that it cannot be had."""
    # Where a disk has become full or read-only, a process can still work alone.
    with suppress(OSError):
        file = held.enter_context(path.open("ab", buffering=0))
        begun, is_told = time.monotonic(), False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = time.monotonic() - begun
                if waited >= PATIENCE_S:
                    break
                if waited >= PATIENCE_S / 30 and not is_told:
                    is_told, holder = True, path.read_text() or "that holds the lock"
                    _log.warning("%s: waiting up to %.0f s for process %s", path.parent, PATIENCE_S, holder)
                time.sleep(_POLL_S)
            else:
                file.truncate(0)
                file.write(b"%d" % os.getpid())
                return True
    return False


def _write(path: Path, of_blocks: SwapsByBlock) -> None:
    table = canonical([[name, start, swaps.at.numel()] for (name, start), swaps in of_blocks.items()])
    table += b" " * (-len(table) % 4)
    with replacing(path, mode=0o600, sync=False) as file:
        file.write(Digest.of(table).encode() + b"\n" + len(table).to_bytes(8, "little") + table)
        for side in zip(*of_blocks.values(), strict=True):
            for part in side:
                file.write(part.numpy().data)


def _read(path: Path) -> SwapsByBlock:
    """Mapped, so that processes share the memory; nothing where it is missing, damaged or not the user's own."""
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not (stat.S_ISREG(status.st_mode) and status.st_size and _is_private(status)):
            return {}
        data = np.memmap(file, np.uint8, "c")
    digest, length, table = data[:71].tobytes(), int.from_bytes(data[72:80].tobytes(), "little"), data[80:]
    text = table[:length].tobytes()
    if Digest.of(text).encode() != digest:
        return {}
    try:
        blocks = decoded(list[tuple[str, int, int]], text, path.name)
    except FormatError:
        return {}
    counts = [count for *_, count in blocks]
    total = sum(counts)
    if length % 4 or min(counts, default=0) < 0 or table.size != length + 8 * total:
        return {}
    movers = torch.split(torch.from_numpy(np.asarray(table[length:])), [4 * total, 2 * total, 2 * total])
    sides = (torch.split(side.view(dtype), counts) for side, dtype in zip(movers, _DTYPES, strict=True))
    return {(name, start): Swaps(*each) for (name, start, _), *each in zip(blocks, *sides, strict=True)}
