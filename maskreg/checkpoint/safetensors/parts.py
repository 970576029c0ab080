"""Sending parts of unfinished objects in a bucket from another process.

The process that makes a checkpoint begins the uploads, notes what was sent, and completes them. Workers of a cluster
only send parts, with credentials of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from maskreg.bucket import BucketPath
from maskreg.bucket.uploads import Uploads, send_part
from maskreg.checkpoint.tasks import Part


class ObjectParts(NamedTuple):
    """An object whose upload has begun.

    Attributes:
        key: of the object; empty for one that has no parts.
        upload_id: what the service calls the upload.
        header: the file's, which its first part begins with.
    """

    key: str
    upload_id: str
    header: bytes


@dataclass(frozen=True)
class PartSender:
    """What a writer is in another process.

    Attributes:
        out: where the checkpoint will appear.
        objects: its weight files, in order.
    """

    out: BucketPath
    objects: tuple[ObjectParts, ...]

    def phase(self, offset: int) -> int:
        """Anywhere; see :meth:`maskreg.checkpoint.base.CheckpointWriter.phase`."""
        return 0

    def send(self, part: Part, data: bytearray) -> str:
        """Send a part; see :meth:`maskreg.checkpoint.base.CheckpointWriter.send`."""
        key, upload_id, header = self.objects[part.file]
        if not part.number:
            data = bytearray(header) + data
        return send_part(_connected(self.out), key, upload_id, part.number + 1, data)["ETag"]


@lru_cache(maxsize=1)
def _connected(out: BucketPath) -> Uploads:
    return Uploads(out)
