"""The contract of an output that is being written and not yet visible: beside its path on a disk, or in a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from maskreg.bucket import BucketPath, Location
from maskreg.checkpoint.bucket_output import BucketOutput
from maskreg.checkpoint.output import PendingOutput


class OutputFile(Protocol):
    """A new file that several threads write at once, each byte once."""

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write bytes at their place.

        Args:
            offset: of the first byte in the file.
            data: bytes.
        """

    def sync(self) -> None:
        """Wait until what was written is safe."""

    def close(self) -> None:
        """Close it. May be called twice."""


class Pending(Protocol):
    """An output that appears whole, or not at all."""

    kept: tuple[str, ...]
    """After a commit, files that were in its folder before and that it does not write."""

    @property
    def path(self) -> Location:
        """Where it appears, absolute."""

    def begin(self, needed_bytes: int) -> None:
        """Check that the output may appear and fits.

        Raises:
            OutputExistsError: something has the name, and it must not be replaced.
            NoSpaceError: too little space is free.
            CannotCreateError: what has the name must not be replaced.
        """

    def create(self, name: str, size: int) -> OutputFile:
        """A new file of the output; for an output that is one file, its own.

        Args:
            name: of the file.
            size: in bytes.
        """

    def commit(self) -> None:
        """Make the finished output visible.

        Raises:
            OutputExistsError: something else took the path in the meantime.
        """

    def discard(self) -> str:
        """Remove unfinished work; do nothing after a commit.

        Returns:
            What may be left of it, and what removes that, for people; empty for nothing.
        """


def pending_output(
    out: Location,
    *,
    is_file: bool,
    weights: str,
    index: str,
    names: frozenset[str],
    sources: tuple[Location, ...],
    force: bool,
) -> Pending:
    """An output at a path on a disk or in a bucket.

    Args:
        out: where it appears.
        is_file: it is one file, not a directory.
        weights: pattern of the weight files; only a directory with such a file may be replaced.
        index: the file without which readers find no checkpoint; of one file, that.
        names: files that a directory will have.
        sources: what it must not replace.
        force: replace an earlier output.
    """
    if isinstance(out, BucketPath):
        return BucketOutput(out, is_file, weights, index, names, sources, force)
    paths = tuple(path for path in sources if isinstance(path, Path))
    return PendingOutput(out, is_file=is_file, weights=weights, names=names, sources=paths, force=force)
