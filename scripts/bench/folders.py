"""Folders to measure in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskreg.disk import free_bytes


@contextmanager
def work_folder(parent: Path | None) -> Iterator[Path]:
    """A temporary folder in ``parent``, which is created; in the system's place for them by default."""
    if parent:
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="maskreg-bench-", dir=parent) as folder:
        yield Path(folder)


def check_space(parent: Path | None, gigabytes: float) -> None:
    """Check that source, target, result and an artifact of the same size fit on the disk.

    Raises:
        SystemExit: they do not.
    """
    folder = parent or Path(tempfile.gettempdir())
    needed, free = int(gigabytes * 4e9) + (256 << 20), free_bytes(folder)
    if free < needed:
        raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free, but {needed / 1e9:.1f} GB are needed; use --dir")
