"""What sweeps have extracted, so that no checkpoint is read twice for the same artifact.

A note of the local registry says which artifact came of which files under which options. It is a convenience: one
that is lost or damaged costs an extraction, and one whose artifact is gone is not used::

    sweeps/<sha256 of both sides' files and the options>.json    {"digest": ..., "schema": ..., "seal": ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.run import Stamp
from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.disk import creating, make_folder, replacing
from maskreg.document import canonical
from maskreg.errors import DataError, MaskregError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.workspace.workspace import Workspace

_SCHEMA = "maskreg.swept/1"


class Extractions:
    """Which artifacts were extracted from which files."""

    def __init__(self, workspace: Workspace, options: Mapping[str, object]) -> None:
        """The records of a workspace's local registry.

        Args:
            workspace: the workspace.
            options: everything beside the files that the artifact depends on, as JSON values.
        """
        self._local = workspace.local
        self._folder = workspace.root / "sweeps"
        self._options = dict(options)

    def key(self, source: Stamp, target: Stamp) -> str:
        """What stands for two checkpoints, as their files were, and the options."""
        return Digest.of(canonical([source, target, self._options])).hex

    def recall(self, key: str) -> Artifact | None:
        """The artifact that was extracted, if it is still in the local registry, whole."""
        path = self._folder / f"{key}.json"
        try:
            row = parse_sealed(path.read_bytes(), str(path), schema=_SCHEMA, max_bytes=LIMITS.small_file_bytes)
            artifact = self._local.artifact(Digest(str(row["digest"])))
            for part in artifact.manifest.parts:
                artifact.require(part)
        except (OSError, NotFoundError, DataError):
            return None
        return artifact

    def note(self, key: str, digest: Digest) -> None:
        """Keep what an extraction gave."""
        # Without the note the next sweep works again; that is no reason to fail work that is done.
        path = self._folder / f"{key}.json"
        with suppress(MaskregError), creating(path):
            make_folder(self._folder)
            with replacing(path) as file:
                file.write(sealed({"schema": _SCHEMA, "digest": str(digest)}))
