"""Writing objects in parts, from several threads, which no reader sees before they are completed.

::

    write_at(0, 8M) write_at(8M, 8M) write_at(24M, 8M) write_at(16M, 8M)      in any order
    part 1 [0, 16M) is full: send it         part 2 [16M, 32M) is full: send it
    complete()                               the object is there, whole
    abort()                                  it never was; the service drops its parts

A process that is killed can do neither. Its parts cost money and no list shows them: :func:`drop_abandoned` finds them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from maskreg.bucket.client import check_options, connect, status_of, translated
from maskreg.bucket.path import BucketPath
from maskreg.errors import CannotCreateError, ConfigError, MaskregError, NotFoundError, OutputExistsError
from maskreg.parallel import DaemonPool, acquire, interruptible, result_of

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

PART_BYTES = 16 << 20
"""Bytes of a part, but of the last; a shorter object is sent in one request."""

_MOST_PARTS = 9000
"""Services take 10,000."""

ATTEMPTS = 10
"""Tries of a request, with pauses that grow to 20 s: a server that starts again is back then."""

_PATIENCE_SECONDS = 60.0
"""After which a request that had no answer is not tried again."""

_ABORT_SECONDS = 3.0
"""Without any answer, after which the doctor removes uploads."""

_READ_SECONDS = 60.0
"""Without a byte of an answer."""

COMPLETING = 16
"""Objects that are completed at a time: the service works on each, and little is sent."""

CLAIM = ".maskreg-commit"
"""Name (of a single file's claim: suffix) of the object that lets one run at a time complete an output."""

_SENDERS = 4
_WAITING = 8
"""Full parts in memory at most: those on their way, and some that wait."""


def check_output(path: BucketPath) -> None:
    """Check what can be said of an output before anything is sent."""
    _require_s3(path)
    if not path.key:
        raise CannotCreateError(f"{path}: a checkpoint needs a prefix of its own", hint=f"write to {path}/NAME")


def _require_s3(path: BucketPath) -> None:
    if not path.bucket.root.startswith("s3://"):
        raise ConfigError(f"{path}: checkpoints are written to S3 alone", hint="write to a folder, and copy that")


def part_bytes(size: int, least: int) -> int:
    """Bytes of each part of an object of ``size`` bytes, but of the last: ``least``, or more for a very large one."""
    return max(least, -(-size // _MOST_PARTS))


class Uploads:
    """A connection to the bucket of a folder that is written. Safe to use from many threads."""

    def __init__(self, folder: BucketPath) -> None:
        """Nothing is sent yet."""
        _require_s3(folder)
        check_options(folder.bucket.options)
        self.folder = folder
        self.bucket = folder.bucket.root.removeprefix("s3://")
        with translated(str(folder), self.bucket, "put"):
            self.client: S3Client = connect(
                folder.bucket.options, read_seconds=_READ_SECONDS, attempts=ATTEMPTS, patience_seconds=_PATIENCE_SECONDS
            )
        self.pool = DaemonPool(_SENDERS, "maskreg-upload")
        self.room = threading.Semaphore(_WAITING)
        self.failure: BaseException | None = None

    def abort(self, uploads: Iterable[Upload]) -> bool:
        """Drop what was sent of objects, unless the service takes seconds for an answer; whether all is dropped."""
        pool = DaemonPool(COMPLETING, "maskreg-abort")
        answers = {pool.submit(upload.abort) for upload in uploads}
        pool.close()
        waiting = answers
        while waiting:
            done, waiting = wait(waiting, timeout=_ABORT_SECONDS, return_when=FIRST_COMPLETED)
            if not done:
                return False
        errors = [error for answer in answers if (error := answer.exception()) is not None]
        for error in errors:
            if not isinstance(error, MaskregError):
                raise error
        return not errors

    @contextmanager
    def errors(self, key: str) -> Iterator[None]:
        """Let only this package's errors leave the block."""
        with translated(self.folder.bucket.root, self.bucket, "put", key):
            yield

    def delete(self, path: BucketPath) -> None:
        """Delete an object, if there is one."""
        with self.errors(path.key):
            self.client.delete_object(Bucket=self.bucket, Key=path.key)

    def check(self) -> None:
        """Raise the error of a part that could not be sent: no other is sent then."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End the threads and the connections, those that still send when they have ended."""
        self.pool.close()
        self.client.close()


class _Part:
    """Bytes of a part, and how many of them are missing."""

    def __init__(self, size: int) -> None:
        self.memory, self.missing = bytearray(size), size


class Upload:
    """An object that is being written; an :class:`~maskreg.checkpoint.output.OutputFile`.

    Attributes:
        path: of the object.
        upload_id: what the service calls the upload; empty before it has begun.
        is_unsure: whether it has begun is not known, because the service did not answer.
    """

    def __init__(self, uploads: Uploads, path: BucketPath, size: int) -> None:
        """Nothing is sent yet."""
        self.path, self._uploads, self._size = path, uploads, size
        self._part_bytes = part_bytes(size, PART_BYTES)
        self._lock = threading.Lock()
        self._parts: dict[int, _Part] = {}
        self._sending: list[Future[CompletedPartTypeDef]] = []
        self._sent: list[CompletedPartTypeDef] = []
        self._whole = b""
        self._etag = ""
        self.upload_id = ""
        self.is_unsure = False

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write bytes at their place; waits while too many full parts are on their way."""
        while data:
            number, begin = divmod(offset, self._part_bytes)
            piece = data[: self._part_bytes - begin]
            length = min(self._part_bytes, self._size - number * self._part_bytes)
            with self._lock:
                if (part := self._parts.get(number)) is None:
                    part = self._parts[number] = _Part(length)
            part.memory[begin : begin + len(piece)] = piece
            with self._lock:
                # Counted when it is there: of several threads, the last finds the part full.
                part.missing -= len(piece)
                is_full = not part.missing
                if is_full:
                    del self._parts[number]
            if part.missing < 0:
                raise CannotCreateError(
                    f"{self.path}: more than the {self._size:,} bytes that were planned",
                    hint="write every byte of the plan once",
                )
            if is_full:
                self._send(number, part.memory)
            data, offset = data[len(piece) :], offset + len(piece)

    def begin(self) -> None:
        """Begin an upload whose parts other processes send."""
        if not self.upload_id:
            self.upload_id = self._begin()

    def sent(self, number: int, etag: str) -> None:
        """Take note of a part that another process has sent with :func:`send_part`."""
        self._sent.append({"PartNumber": number + 1, "ETag": etag})

    def sync(self) -> None:
        """Wait until all parts that are full have arrived."""
        for part in self._sending:
            result_of(part)

    def close(self) -> None:
        """Do nothing: an upload ends when it is completed or aborted."""

    def complete(self, *, only_new: bool = False) -> None:
        """Let the object appear.

        Args:
            only_new: not where there is one; for an object that is sent in one request.
        """
        uploads, key = self._uploads, self.path.key
        with uploads.errors(key):
            if self.upload_id:
                own = [result_of(part) for part in self._sending]
                parts = sorted([*own, *self._sent], key=lambda part: part["PartNumber"])
                # SeaweedFS and moto answer a repeated request, whose first answer was lost, as they did before.
                complete = partial(uploads.client.complete_multipart_upload, Bucket=uploads.bucket, Key=key)
                made = interruptible(lambda: complete(UploadId=self.upload_id, MultipartUpload={"Parts": parts}))
                self.upload_id, self._etag = "", made["ETag"].strip('"')
                return
            try:
                put = partial(uploads.client.put_object, Bucket=uploads.bucket, Key=key, Body=self._whole)
                answer = interruptible(lambda: put(IfNoneMatch="*") if only_new else put())
                self._etag = answer["ETag"].strip('"')
            except uploads.client.exceptions.ClientError as error:
                if status_of(error) != 412:
                    raise
                if not self._came_before(error):
                    raise OutputExistsError(self.path) from error
                self._etag = hashlib.md5(self._whole, usedforsecurity=False).hexdigest()

    def _came_before(self, error: ClientError) -> bool:
        """Whether a request was refused because it had been carried out, and only its first answer was lost."""
        if not error.response["ResponseMetadata"].get("RetryAttempts", 0):
            return False
        uploads = self._uploads
        try:
            head = uploads.client.head_object(Bucket=uploads.bucket, Key=self.path.key)
        except uploads.client.exceptions.ClientError:
            return False  # what was refused first says more
        return head["ETag"].strip('"') == hashlib.md5(self._whole, usedforsecurity=False).hexdigest()

    def is_at(self, path: BucketPath) -> bool:
        """Whether a path, as it was listed, holds the object that this upload completed, and no later one."""
        try:
            return path.version()[1].strip('"') == self._etag
        except NotFoundError:
            return False

    def delete_own(self) -> None:
        """Delete an object that was sent in one request, unless another one has replaced it."""
        uploads, key = self._uploads, self.path.key
        with uploads.errors(key):
            if uploads.client.get_object(Bucket=uploads.bucket, Key=key)["Body"].read() == self._whole:
                uploads.delete(self.path)

    def abort(self) -> None:
        """Drop what was sent; does nothing after :meth:`complete`."""
        for part in self._sending:
            part.cancel()
        if self.upload_id:
            with self._uploads.errors(self.path.key):
                self._uploads.client.abort_multipart_upload(
                    Bucket=self._uploads.bucket, Key=self.path.key, UploadId=self.upload_id
                )
            self.upload_id = ""

    def _send(self, number: int, memory: bytearray) -> None:
        if self._size <= PART_BYTES:
            self._whole = bytes(memory)
            return
        with self._lock:
            if not self.upload_id:
                self.upload_id = self._begin()
        acquire(self._uploads.room)
        self._uploads.check()
        self._sending.append(self._uploads.pool.submit(self._send_part, number + 1, memory))

    def _begin(self) -> str:
        with self._uploads.errors(self.path.key):
            self.is_unsure = True
            create = partial(self._uploads.client.create_multipart_upload, Bucket=self._uploads.bucket)
            answer = interruptible(lambda: create(Key=self.path.key))
        self.is_unsure = False
        return answer["UploadId"]

    def _send_part(self, number: int, memory: bytearray) -> CompletedPartTypeDef:
        uploads = self._uploads
        try:
            uploads.check()
            return send_part(uploads, self.path.key, self.upload_id, number, memory)
        except BaseException as error:
            uploads.failure = error
            raise
        finally:
            uploads.room.release()


def send_part(uploads: Uploads, key: str, upload_id: str, number: int, data: bytearray) -> CompletedPartTypeDef:
    """Send a part of an object; sending it again changes nothing."""
    with uploads.errors(key):
        answer = uploads.client.upload_part(
            Bucket=uploads.bucket,
            Key=key,
            PartNumber=number,
            UploadId=upload_id,
            Body=data,  # type: ignore[arg-type]  # which the stubs do not know to be taken
        )
    return {"PartNumber": number, "ETag": answer["ETag"]}


IDLE = timedelta(hours=1)
"""Without a new part in their folder for so long, uploads count as abandoned."""


def drop_abandoned(folder: BucketPath, *, idle: timedelta = IDLE) -> tuple[BucketPath, ...]:
    """Drop abandoned uploads and claims."""
    uploads = Uploads(folder)
    try:
        return tuple(_drop(uploads, idle))
    finally:
        uploads.close()


class Begun(NamedTuple):
    """An upload that is not completed, or a claim."""

    key: str
    upload_id: str
    latest: datetime


def abandoned(begun: Sequence[Begun], now: datetime, idle: timedelta) -> list[Begun]:
    """The uploads that no process goes on with.

    A run completes all its files together, at its end: the first waits for the last, without new parts, for hours.
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
