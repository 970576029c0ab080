"""What killed runs leave behind: unfinished uploads, which no list shows and which cost money, and claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from maskreg.bucket.path import BucketPath
from maskreg.bucket.uploads import CLAIM, Uploads

IDLE = timedelta(hours=1)
"""Without a new part in their folder for so long, uploads count as abandoned."""


def drop_abandoned(folder: BucketPath, *, idle: timedelta = IDLE) -> tuple[BucketPath, ...]:
    """Drop abandoned uploads and claims.

    Args:
        folder: those of objects below it, or of the object itself.
        idle: how long no part has come.

    Returns:
        The objects that the uploads would have become, and the claims.

    Raises:
        UnavailableError, NotAllowedError: the service does not answer, or refuses.
    """
    uploads = Uploads(folder)
    try:
        return tuple(_drop(uploads, idle))
    finally:
        uploads.close()


class Begun(NamedTuple):
    """An upload that is not completed, or a claim.

    Attributes:
        key: of the object.
        upload_id: what the service calls it; empty for a claim.
        latest: when its last part came, or it began.
    """

    key: str
    upload_id: str
    latest: datetime


def abandoned(begun: Sequence[Begun], now: datetime, idle: timedelta) -> list[Begun]:
    """The uploads that nobody goes on with.

    A run completes all its files together, at its end: the first waits for the last, without new parts, for hours.

    Args:
        begun: all uploads of some folders.
        now: the time.
        idle: how long no part has come to a folder.
    """
    latest: dict[str, datetime] = {}
    for upload in begun:
        folder = upload.key.rpartition("/")[0]
        latest[folder] = max(upload.latest, latest.get(folder, upload.latest))
    return [upload for upload in begun if now - latest[upload.key.rpartition("/")[0]] >= idle]


def _drop(uploads: Uploads, idle: timedelta) -> Iterator[BucketPath]:
    client, bucket = uploads.client, uploads.bucket
    with uploads.errors(uploads.folder.key):
        for upload in abandoned(list(_begun(uploads)), datetime.now(UTC), idle):
            path = BucketPath(uploads.folder.bucket, upload.key)
            with suppress(client.exceptions.NoSuchUpload):
                if upload.upload_id:
                    client.abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)
                else:
                    uploads.delete(path)
                yield path


def _begun(uploads: Uploads) -> Iterator[Begun]:
    client, bucket, folder = uploads.client, uploads.bucket, uploads.folder.key
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=folder):
        for row in page.get("Uploads", ()):
            key, upload_id, latest = row["Key"], row["UploadId"], row["Initiated"]
            if folder and key != folder and not key.startswith(f"{folder}/"):
                continue
            # It may be completed by now.
            with suppress(client.exceptions.NoSuchUpload):
                for parts in client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload_id):
                    latest = max([latest, *(part["LastModified"] for part in parts.get("Parts", ()))])
                yield Begun(key, upload_id, latest)
    for objects in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder):
        for entry in objects.get("Contents", ()):
            key = entry["Key"]
            if key.endswith(CLAIM) and (not folder or key == folder + CLAIM or key.startswith(f"{folder}/")):
                yield Begun(key, "", entry["LastModified"])
