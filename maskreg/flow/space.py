"""Whether the disk has room for an artifact: checked before its first byte, and reported when it becomes full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskreg.disk import filling, require_space

_WHAT = "the artifact"


@contextmanager
def artifact_space(root: Path, needed: int) -> Iterator[None]:
    """Write an artifact of ``needed`` bytes inside, on the disk of the registry at ``root``."""
    require_space(root, needed, what=_WHAT, registry=str(root))
    with filling(root, needed, what=_WHAT, registry=str(root)):
        yield
