"""Folders to measure in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from maskreg.space import free_bytes


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


def cache_folder(chosen: Path | None) -> Path:
    """Where pairs of checkpoints are kept; in the user's cache folder by default."""
    return chosen or user_cache_path("maskreg") / "bench"


def fill_once(folder: Path, fill: Callable[[Path], None]) -> None:
    """Create a folder, unless it exists; it appears when ``fill`` has filled it."""
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        fill(unfinished)
        unfinished.rename(folder)
