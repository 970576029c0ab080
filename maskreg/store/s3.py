"""A store in a bucket of S3 or of a compatible service, through botocore."""

from __future__ import annotations

import base64
import hashlib
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from maskreg.bucket.client import check_options, connect, status_of, translated
from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, LimitError, NotFoundError, UnavailableError
from maskreg.parallel import each
from maskreg.settings import StoreOptions
from maskreg.store.base import LINK_SECONDS, Link, ObjectInfo, Store, check_key, check_prefix, is_clean

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_T = TypeVar("_T")
_DELETERS = 8
_PAUSE_SECONDS = 0.05


class S3Store(Store):
    """Objects in a bucket, below a prefix. Credentials come from the AWS chain at the first request.

    Args:
        bucket: name of the bucket, which must exist.
        prefix: the store's root in the bucket; empty for the bucket itself.
        options: how to talk to the service.
        connect_seconds: how long to wait for a connection.
        read_seconds: how long to wait for the next bytes of an answer.
        attempts: tries of a request before the service counts as unavailable; with the defaults a hanging service
            is given up after about a minute.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        options: StoreOptions = StoreOptions(),  # noqa: B008 - a frozen value
        *,
        connect_seconds: float = 5,
        read_seconds: float = 20,
        attempts: int = 3,
    ) -> None:
        prefix = prefix.strip("/")
        check_options(options)
        self._patience = {"connect_seconds": connect_seconds, "read_seconds": read_seconds}
        self.options = options
        self._bucket = bucket
        self._root = check_key(prefix) + "/" if prefix else ""
        self._attempts = attempts
        self._connecting = threading.Lock()
        self._connected: S3Client | None = None
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; see :class:`~maskreg.store.base.Store`.

        botocore retries the request but not the body: an answer that breaks off is requested again.
        """
        check_key(key)

        def request() -> bytes:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._root + key)
            with closing(answer["Body"]) as body:
                return _read(body, key, answer.get("ContentLength"), max_bytes)

        return self.answer("get", key, request)

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and time, or None."""
        check_key(key)

        def request() -> ObjectInfo | None:
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=self._root + key)
            except self._client.exceptions.ClientError as error:
                if status_of(error) == 404:
                    return None
                raise
            return ObjectInfo(key, answer["ContentLength"], answer["LastModified"].astimezone(UTC))

        return self.answer("head", key, request)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object, in one request."""
        check_key(key)
        self.answer(
            "put", key, lambda: self._client.put_object(Bucket=self._bucket, Key=self._root + key, Body=bytes(data))
        )

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none, in one conditional request."""
        check_key(key)

        def request() -> bool:
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._root + key, Body=bytes(data), IfNoneMatch="*")
            except self._client.exceptions.ClientError as error:
                if status_of(error) == 412:
                    return False
                raise
            return True

        return self.answer("create", key, request)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix``, in key order; names that are not clean keys are left out."""
        check_prefix(prefix)
        # Some services list folders together, so that "a/x" comes before "a-b".
        return iter(sorted(self._pages(prefix), key=attrgetter("key")))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is not an error.

        One request each: services disagree on the checksum that a request for many needs.
        """
        each([check_key(key) for key in keys], self._delete_one, _DELETERS)

    def clock(self) -> datetime:
        """The time by the service's clock, to the second."""

        def request() -> datetime:
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._root, MaxKeys=1)
            date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
            return parsedate_to_datetime(date).astimezone(UTC)

        return self.answer("list", "", request)

    def close(self) -> None:
        """Close the connections; the store must not be used afterwards."""
        if self._connected is not None:
            self._connected.close()

    def client_and_place(self, key: str) -> tuple[S3Client, tuple[str, str]]:
        """The client, and the bucket and name of an object, for requests that are not of every store."""
        return self._client, (self._bucket, self._root + check_key(key))

    @property
    def _client(self) -> S3Client:
        with self._connecting:
            if self._connected is None:
                with self._errors("list"):
                    self._connected = self.connect()
            return self._connected

    def connect(self) -> S3Client:
        """A client that closes with this store."""
        client = connect(self.options, attempts=self._attempts, **self._patience)
        weakref.finalize(self, client.close)
        return client

    def _pages(self, prefix: str) -> Iterator[ObjectInfo]:
        token: dict[str, Any] = {}
        while True:
            ask = partial(self._client.list_objects_v2, Bucket=self._bucket, Prefix=self._root + prefix)
            page = self.answer("list", "", partial(ask, **token))
            for row in page.get("Contents", ()):
                key = row["Key"].removeprefix(self._root)
                if is_clean(key):
                    yield ObjectInfo(key, row["Size"], row["LastModified"].astimezone(UTC))
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _delete_one(self, key: str) -> None:
        self.answer("delete", key, lambda: self._client.delete_object(Bucket=self._bucket, Key=self._root + key))

    def answer(self, operation: str, key: str, request: Callable[[], _T]) -> _T:
        """What a request of the client returns; one that is answered with 409, or in part, is made again.

        409 means that the service is at work on the same key or bucket. What two writers of one key get is up to the
        service: some answer 409 to the one that comes second, though the first can still fail.
        """
        for attempt in range(1, self._attempts + 1):
            with self._errors(operation, key):
                try:
                    return request()
                except _BrokenOffError:
                    fault = "the connection broke off"
                except self._client.exceptions.ClientError as error:
                    if status_of(error) != 409:
                        raise
                    fault = "the service reported a conflict"
            time.sleep(random.uniform(0.5, 1) * _PAUSE_SECONDS * 2**attempt)
        raise UnavailableError(
            f"{self.url}: {operation}: {fault} {self._attempts} times" + (f" for {key}" if key else ""),
            hint="run the same command again in a moment",
        )

    def _errors(self, operation: str, key: str = "") -> AbstractContextManager[None]:
        return translated(self.url, self._bucket, operation, key)

    # Signed links

    @property
    def links(self) -> S3Store:
        """Signed links to the objects."""
        return self

    def read_link(self, key: str) -> str:
        """A link to read an object."""
        client, place = self.client_and_place(key)
        return client.generate_presigned_url(
            "get_object", Params={"Bucket": place[0], "Key": place[1]}, ExpiresIn=LINK_SECONDS
        )

    def upload_link(self, key: str, size: int, sha256: Digest) -> Link:
        """A link to upload an object of this size and digest."""
        client, place = self.client_and_place(key)
        checksum = base64.b64encode(bytes.fromhex(sha256.hex)).decode()
        params = {"Bucket": place[0], "Key": place[1], "ContentLength": size, "ChecksumSHA256": checksum}
        url: str = client.generate_presigned_url("put_object", Params=params, ExpiresIn=LINK_SECONDS)
        return Link(url, {"Content-Length": str(size), "x-amz-checksum-sha256": checksum})

    def promote(self, staged: str, key: str, size: int, sha256: Digest) -> None:
        """Copy an upload to its key, if it is what was stated; the upload stays."""
        client, source = self.client_and_place(staged)
        _, target = self.client_and_place(key)

        def look() -> dict[str, object] | None:
            try:
                return dict(client.head_object(Bucket=source[0], Key=source[1], ChecksumMode="ENABLED"))
            except client.exceptions.ClientError as error:
                if status_of(error) == 404:
                    return None
                raise

        facts = self.answer("head", staged, look)
        if facts is None or (size and facts["ContentLength"] == 0):
            raise NotFoundError(f"nothing was uploaded for {key}")
        etag = str(facts["ETag"])
        if facts["ContentLength"] != size or not self._is_stated(staged, facts, sha256):
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

        if not self.answer("put", key, copy):
            fault = f"the upload for {key} was replaced or taken while it was checked"
            raise ConflictError(fault, hint="upload it again if it is not there")

    def _is_stated(self, key: str, facts: dict[str, object], sha256: Digest) -> bool:
        stated = facts.get("ChecksumSHA256")
        if isinstance(stated, str):
            # The service has computed it when the object was written.
            return base64.b64decode(stated).hex() == sha256.hex
        data = self.get(key, max_bytes=int(str(facts["ContentLength"])))
        return hashlib.sha256(data).hexdigest() == sha256.hex

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"


class _BrokenOffError(Exception):
    """The connection broke off in the middle of an answer."""


def _read(body: Any, key: str, size: int | None, max_bytes: int) -> bytes:
    from botocore.exceptions import HTTPClientError, IncompleteReadError, ResponseStreamingError
    from urllib3.exceptions import HTTPError

    if size is not None and size > max_bytes:
        raise LimitError(f"{key}: {size} bytes; the limit is {max_bytes}")
    try:
        data: bytes = body.read(max_bytes + 1)
    except (HTTPClientError, IncompleteReadError, ResponseStreamingError, HTTPError, OSError) as error:
        raise _BrokenOffError from error
    if len(data) > max_bytes:
        raise LimitError(f"{key}: more than {max_bytes} bytes; that is the limit")
    if size is not None and len(data) != size:
        raise _BrokenOffError
    return data
