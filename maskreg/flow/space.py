"""Whether the disk has room for an artifact, checked before its first byte is written."""

from __future__ import annotations

from pathlib import Path

from maskreg.disk import nearest_existing, require_space


def require_artifact_space(root: Path, needed: int) -> None:
    """Check that an artifact of ``needed`` bytes fits on the disk of the registry at ``root``.

    Raises:
        NoSpaceError: it does not.
    """
    hint = f"df -h {nearest_existing(root)}; or keep the registry elsewhere with MASKREG_HOME"
    require_space(root, needed, what="the artifact", hint=hint)
