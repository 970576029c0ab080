"""A bucket that is read: requests for parts of its objects, and folders that are listed once each.

Reading goes through the package obstore, which moves bytes without Python: a third of the CPU time of boto3. Settings
and credentials come from the AWS chain all the same, so whoever can push to a bucket can read a checkpoint in it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maskreg.bucket.answers import CREDENTIALS_HINT, denied_hint, translated
from maskreg.bucket.client import addressing, check_options, connect
from maskreg.bucket.services import KINDS
from maskreg.errors import (
    ConfigError,
    CorruptError,
    FormatError,
    MaskregError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from maskreg.extras import requiring
from maskreg.parallel import DaemonPool, interruptible
from maskreg.settings import StoreOptions

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, ClientConfig, ObjectStore, RetryConfig, S3Config, S3Store
    from typing_extensions import Buffer

_READERS = 16
"""Requests at a time that fetch what is read soon."""

_STATUS = re.compile(r"status code: (\d{3})")
_TOKEN = "token request"
"""In the text of an error of Google's service without credentials: it asked the machine that it runs on for some."""

_NO_PATH = re.compile(r'parsing Path "(.*)": ', re.DOTALL)
"""In the text of an error about a key with control characters, or with a dot alone between slashes."""

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")

_PATIENCE = timedelta(seconds=60)
"""How long a request is tried again, with pauses that grow to some seconds: a server that starts again is back then."""

_RETRIES = 1000
"""More than fit into that time."""

_PAUSES: BackoffConfig = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2}

_READ_SECONDS = timedelta(seconds=30)


class Entry(NamedTuple):
    """What a folder of a bucket holds under a name.

    Attributes:
        size: of the object in bytes; None for a folder.
        etag: of the object, which changes with its bytes; empty where the service gives none.
    """

    size: int | None
    etag: str = ""


class Bucket:
    """A bucket, and its folders as they were when they were first looked at. Safe to use from many threads.

    It can be pickled: another process connects for itself.

    Attributes:
        root: its URL, such as ``s3://bucket``.
        options: how to talk to the service.
    """

    def __init__(self, root: str, options: StoreOptions) -> None:
        """Nothing is sent yet.

        Args:
            root: scheme and name.
            options: how to talk to the service; for S3 alone.

        Raises:
            ConfigError: options that are not usable, or the package obstore is not installed.
        """
        with requiring(f"{root}: a checkpoint in a bucket"):
            import obstore  # noqa: F401
        if root.startswith("s3://"):
            check_options(options)
        self.root, self.options = root, options
        self._scheme = root.partition("://")[0]
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None
        self._pool: DaemonPool | None = None
        self._folders: dict[str, Mapping[str, Entry]] = {}

    def folder(self, key: str) -> Mapping[str, Entry]:
        """What a folder holds, by name; empty where there is no such folder.

        Args:
            key: of the folder, without a slash at its end; empty for the bucket itself.

        Raises:
            UnavailableError: the service does not answer.
            RefusedError: the credentials do not let it be listed.
            NotFoundError: there is no such bucket.
            FormatError: an object in it has a key that is no path.
        """
        with self._lock:
            known = self._folders.get(key)
        if known is None:
            known = self._list(key)
            with self._lock:
                known = self._folders.setdefault(key, known)
        return known

    def knows(self, key: str) -> bool:
        """Whether a folder was listed."""
        with self._lock:
            return key in self._folders

    def read(self, key: str, start: int, stop: int, etag: str = "") -> Buffer:
        """Bytes ``[start, stop)`` of an object; fewer where it ends before.

        Args:
            key: of the object.
            start: first byte.
            stop: one past the last.
            etag: which the object must still have; empty for any.

        Raises:
            NotFoundError: there is no such object.
            CorruptError: it was replaced since its folder was listed.
            UnavailableError: the service does not answer.
            RefusedError: the credentials do not let it be read.
        """
        import obstore

        with self._errors("get", key):
            options: dict[str, Any] = {"range": (start, stop)}
            if etag:
                options["if_match"] = etag
            return interruptible(lambda: obstore.get(self.store, key, options=options).bytes())  # type: ignore[arg-type]

    @property
    def store(self) -> ObjectStore:
        """The connection, opened when it is first needed."""
        with self._lock:
            if self._store is None:
                # Opening takes a tenth of a second, so paths in one bucket share it while the AWS chain says the same.
                chain = sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
                self._store = _connected(self.root, self.options, tuple(chain))
            return self._store

    @property
    def pool(self) -> DaemonPool:
        """Threads that fetch what is read soon."""
        with self._lock:
            if self._pool is None:
                self._pool = DaemonPool(_READERS, "maskreg-bucket")
            return self._pool

    def _list(self, key: str) -> Mapping[str, Entry]:
        import obstore

        prefix = f"{key}/" if key else ""
        with self._errors("list", key):
            result = interruptible(lambda: obstore.list_with_delimiter(self.store, prefix or None))
        folders = {path.rstrip("/")[len(prefix) :]: Entry(None) for path in result["common_prefixes"]}
        files = {
            meta["path"][len(prefix) :]: Entry(meta["size"], meta["e_tag"] or "")
            for meta in result["objects"]
            if meta["path"] != key  # the object of no bytes by which some programs mark a folder
        }
        return {**folders, **files}

    @contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        """Let only this package's errors leave the block; the library's own texts can hold headers."""
        from obstore import exceptions as kinds

        url = f"{self.root}/{key}".rstrip("/")
        try:
            yield
        except MaskregError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{url}: there is no such object") from error
        except kinds.PreconditionError as error:
            raise CorruptError(
                url, "replaced by another object while it was read", hint="run the same command again"
            ) from error
        except kinds.InvalidPathError as error:
            name = match[1] if (match := _NO_PATH.search(str(error))) else ""
            raise FormatError(
                f"{url}: an object there has a name that is no path: {name!a}",
                hint="move that object away, or the checkpoint to another prefix",
            ) from error
        except (kinds.BaseError, OSError, ValueError) as error:
            if _TOKEN in str(error):
                raise RefusedError(f"{url}: no usable credentials", hint=KINDS[self._scheme].access) from error
            # Refused lists have no class of their own; the text names the answer's status and code.
            status, code = (match[1] if (match := sign.search(str(error))) else "" for sign in (_STATUS, _CODE))
            refused = isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError)
            if refused or status in ("401", "403"):
                hint = KINDS[self._scheme].access
                if self._scheme == "s3":
                    hint = denied_hint(operation, self.root.removeprefix("s3://"))
                raise RefusedError(
                    f"{url}: the credentials were refused" + (f" ({code})" if code else ""), hint=hint
                ) from error
            if status == "404":
                raise NotFoundError(
                    f"{self.root}: there is no such bucket", hint=KINDS[self._scheme].buckets
                ) from error
            raise UnavailableError(
                f"{url}: the service does not answer ({code or type(error).__name__})",
                hint="run the same command again in a moment",
            ) from error

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Bucket) and (self.root, self.options) == (value.root, value.options)

    def __hash__(self) -> int:
        return hash((self.root, self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.root, self.options)


def _retries() -> RetryConfig:
    return {"max_retries": _RETRIES, "retry_timeout": _PATIENCE, "backoff": _PAUSES}


@lru_cache(maxsize=8)
def _connected(root: str, options: StoreOptions, environment: tuple[tuple[str, str], ...]) -> ObjectStore:
    if root.startswith("s3://"):
        return _connect_s3(root, options)
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        return from_url(root, retry_config=_retries())
    except (BaseError, ValueError) as error:
        # Nothing is sent yet, so it is the environment that lacks something.
        hint = KINDS[root.partition("://")[0]].access
        raise ConfigError(f"{root}: the settings of the service are not complete", hint=hint) from error


def _connect_s3(root: str, options: StoreOptions) -> S3Store:
    from boto3 import Session
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import S3Store

    name = root.removeprefix("s3://")
    with translated(root, name, "list"):
        client = connect(options)
        endpoint, region = client.meta.endpoint_url, client.meta.region_name
        client.close()
        session = Session(profile_name=options.profile or None, region_name=region)
        if session.get_credentials() is None:
            raise RefusedError(f"{root}: no credentials", hint=CREDENTIALS_HINT)
        credentials = Boto3CredentialProvider(session)
    own = not endpoint.rstrip("/").endswith((".amazonaws.com", ".amazonaws.com.cn"))
    how: S3Config = {"region": region, "virtual_hosted_style_request": addressing(options) != "path" and not own}
    if own:
        how["endpoint"] = endpoint
    transport: ClientConfig = {"allow_http": True, "read_timeout": _READ_SECONDS, "timeout": _PATIENCE}
    if options.ca_bundle:
        transport["root_certificate"] = Path(options.ca_bundle).read_bytes()
    return S3Store(
        name,
        config=how,
        credential_provider=credentials,
        client_options=transport,
        retry_config=_retries(),
    )
