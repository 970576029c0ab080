"""Signed links into a bucket: for a short time, somebody without credentials may do one thing with one object.

::

    read     GET of one key
    upload   PUT of one key, with the size and the sha256 that are signed into the link: other bytes are refused

What was uploaded is looked at before anybody uses it, and copied within the service to its own key. The copy names the
version that was looked at, because a link can be used again until it expires.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from maskreg.bucket.answers import status_of
from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, NotFoundError
from maskreg.store.s3 import S3Store

SECONDS = 900
"""How long a link is good for."""


@dataclass(frozen=True)
class Link:
    """A signed link for an upload.

    Attributes:
        url: where to PUT.
        headers: that the request has to carry, because they are signed.
    """

    url: str
    headers: dict[str, str]


def reading(store: S3Store, key: str, seconds: int = SECONDS) -> str:
    """A link to read an object."""
    client, place = store.client_and_place(key)
    url: str = client.generate_presigned_url(
        "get_object", Params={"Bucket": place[0], "Key": place[1]}, ExpiresIn=seconds
    )
    return url


def uploading(store: S3Store, key: str, size: int, sha256: Digest, seconds: int = SECONDS) -> Link:
    """A link to upload an object of this size and digest."""
    client, place = store.client_and_place(key)
    checksum = base64.b64encode(bytes.fromhex(sha256.hex)).decode()
    params = {"Bucket": place[0], "Key": place[1], "ContentLength": size, "ChecksumSHA256": checksum}
    url: str = client.generate_presigned_url("put_object", Params=params, ExpiresIn=seconds)
    return Link(url, {"Content-Length": str(size), "x-amz-checksum-sha256": checksum})


def promote(store: S3Store, staged: str, key: str, size: int, sha256: Digest) -> None:
    """Copy an upload to its key, if it is what was stated; the upload stays.

    Raises:
        NotFoundError: nothing was uploaded.
        CorruptError: it is something else.
        ConflictError: it was replaced or taken meanwhile.
    """
    client, source = store.client_and_place(staged)
    _, target = store.client_and_place(key)

    def look() -> dict[str, object] | None:
        try:
            return dict(client.head_object(Bucket=source[0], Key=source[1], ChecksumMode="ENABLED"))
        except client.exceptions.ClientError as error:
            if status_of(error) == 404:
                return None
            raise

    facts = store.answer("head", staged, look)
    if facts is None or (size and facts["ContentLength"] == 0):
        raise NotFoundError(f"nothing was uploaded for {key}")
    etag = str(facts["ETag"])
    if facts["ContentLength"] != size or not _is(store, staged, facts, sha256):
        raise CorruptError(key, "what was uploaded is not what was stated")

    def copy() -> bool:
        bucket, name = target
        seen = {"Bucket": source[0], "Key": source[1]}
        try:
            client.copy_object(Bucket=bucket, Key=name, CopySource=seen, CopySourceIfMatch=etag)  # type: ignore[arg-type]
        except client.exceptions.ClientError as error:
            # 412: replaced since. 404: another request has taken it since.
            if status_of(error) in (404, 412):
                return False
            raise
        return True

    if not store.answer("put", key, copy):
        fault = f"the upload for {key} was replaced or taken while it was checked"
        raise ConflictError(fault, hint="upload it again if it is not there")


def _is(store: S3Store, key: str, facts: dict[str, object], sha256: Digest) -> bool:
    stated = facts.get("ChecksumSHA256")
    if isinstance(stated, str):
        # The service has computed it when the object was written.
        return base64.b64decode(stated).hex() == sha256.hex
    data = store.get(key, max_bytes=int(str(facts["ContentLength"])))
    return hashlib.sha256(data).hexdigest() == sha256.hex
