"""What every room that writes to a disk asks the operating system."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the file system can.

    Raises:
        OSError: it could, and failed.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder; they make names durable by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def existing(place: Path) -> Path:
    """``place``, or the nearest folder above it that exists."""
    place = place.absolute()
    return next(path for path in (place, *place.parents) if path.exists())


def free_bytes(place: Path) -> int:
    """Bytes free on the disk where ``place`` is, or would be."""
    return shutil.disk_usage(existing(place)).free


def is_alive(pid: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
