"""Room on disks: one check before the first byte, and one report when a disk becomes full all the same."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from maskreg.disk import is_full, nearest_existing
from maskreg.errors import NoSpaceError


def require_space(path: Path, needed: int, *, spare: int = 0, what: str = "the output", **facts: object) -> None:
    """Check before the first byte is written that the disk of ``path`` has room.

    Args:
        path: what will be written, or its folder; need not exist yet.
        needed: bytes.
        spare: bytes that shall stay free.
        what: the subject of the message.
        facts: of the error; without any, its hint shows the disk.

    Raises:
        NoSpaceError: fewer bytes are free.
    """
    available = free_bytes(path)
    if needed + spare > available:
        beside = f" and {spare:,} to spare" if spare else ""
        raise NoSpaceError(
            f"{path}: {what} needs {needed:,} bytes{beside}, and {available:,} are free",
            hint="" if facts else _disk_step(path),
            needed=needed,
            **facts,
        )


@contextmanager
def filling(
    path: Path,
    needed: int | Callable[[], int],
    *,
    what: str = "the output",
    left: str = "what was written is removed",
    **facts: object,
) -> Iterator[None]:
    """Report a disk that becomes full during the work, which :func:`require_space` cannot foresee, with both figures.

    It is entered first and left last, so that the free bytes are those after the work was undone::

        with filling(path, size, what="the archive"), replacing(path) as file:
            file.write(...)

        x.tar: the disk became full; the archive needs 618,152 bytes, and 307,200 are free; what was written is removed

    Args:
        path: what is written, or its folder.
        needed: bytes that the work still needs; a function where that is known later.
        what: the subject of the message.
        left: what has become of the unfinished work.
        facts: of the error; without any, its hint shows the disk.

    Raises:
        NoSpaceError: the disk or the quota is full.
    """
    try:
        yield
    except OSError as error:
        is_explained = isinstance(error, NoSpaceError) and error.needed is not None
        if is_explained or not is_full(error):
            raise
        size = needed() if callable(needed) else needed
        raise NoSpaceError(
            f"{path}: the disk became full; {what} needs {size:,} bytes, and {free_bytes(path):,} are free; {left}",
            hint="" if facts else _disk_step(path),
            needed=size,
            **facts,
        ) from error


def free_bytes(path: Path) -> int:
    """Bytes free on the disk where ``path`` is, or would be."""
    return shutil.disk_usage(nearest_existing(path)).free


def _disk_step(path: Path) -> str:
    return f"df -h {shlex.quote(str(nearest_existing(path)))}"
