"""Paths in buckets, with those methods of :class:`pathlib.Path` that reading a checkpoint needs.

Code that reads checkpoints takes either kind, and never asks which it is::

    folder = Path("run/step-60")                  a folder on a disk
    folder = BucketPath.of("s3://team/run/step-60")   a prefix in a bucket
    for entry in folder.iterdir(): ...            both
    open_regular(folder / "model.safetensors")    both

Reading goes through the package obstore, which moves bytes without Python: a third of the CPU time of boto3. Settings
and credentials come from the AWS chain.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from maskreg import errors
from maskreg.bucket.client import CREDENTIALS_HINT, addressing, check_options, connect, denied_hint, translated
from maskreg.extras import requiring
from maskreg.parallel import DaemonPool, interruptible
from maskreg.settings import StoreOptions
from maskreg.settings.remotes import check_address

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, ClientConfig, ObjectStore, RetryConfig, S3Config, S3Store
    from typing_extensions import Buffer


class ServiceKind(NamedTuple):
    """How to get credentials of a kind of service; what lists its buckets, and a folder; what copies a folder here."""

    access: str
    buckets: str
    listing: str
    copying: str


KINDS: Mapping[str, ServiceKind] = {
    "s3": ServiceKind(CREDENTIALS_HINT, "aws s3 ls", "aws s3 ls {url}", "aws s3 cp --recursive {url} FOLDER"),
    "gs": ServiceKind(
        "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
        "gcloud storage ls",
        "gcloud storage ls {url}",
        "gcloud storage cp -r {url} FOLDER",
    ),
    "az": ServiceKind(
        "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
        "az storage container list --output table",
        "az storage blob list --output table --container-name {bucket} --prefix {key}",
        "az storage blob download-batch --destination FOLDER --source {bucket} --pattern {key}/*",
    ),
}
"""By the scheme of their URLs."""


_READERS = 16
"""Requests at a time that fetch what is read soon."""

_STATUS = re.compile(r"status code: (\d{3})")
_TOKEN = "token request"
"""In the text of an error of Google's service without credentials: it asked the machine that it runs on for some."""

_NO_PATH = re.compile(r'parsing Path "(.*)": ', re.DOTALL)
"""In the text of an error about a key with control characters, or with a dot alone between slashes."""

_CODE = re.compile(r"<Code>(\w{1,64})</Code>")

PATIENCE = timedelta(seconds=60)
"""How long a request is tried again, with pauses that grow to some seconds: a server that starts again is back then."""

RETRIES = 1000
"""More than fit into that time."""

_PAUSES: BackoffConfig = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2}

_READ_SECONDS = timedelta(seconds=30)


class Entry(NamedTuple):
    """What a folder of a bucket holds under a name; a folder has no size."""

    size: int | None
    etag: str = ""


class Bucket:
    """A bucket, and its folders as they were when they were first looked at. Safe to use from many threads.

    Attributes:
        root: its URL, such as ``s3://bucket``.
        options: how to talk to the service.
    """

    def __init__(self, root: str, options: StoreOptions) -> None:
        """Nothing is sent yet."""
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
        """What a folder holds, by name; empty where there is no such folder."""
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
        """Bytes ``[start, stop)`` of an object; fewer where it ends before."""
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
        except errors.MaskregError:
            raise
        except FileNotFoundError as error:
            raise errors.NotFoundError(f"{url}: there is no such object") from error
        except kinds.PreconditionError as error:
            raise errors.CorruptError(
                url, "replaced by another object while it was read", hint="run the same command again"
            ) from error
        except kinds.InvalidPathError as error:
            name = match[1] if (match := _NO_PATH.search(str(error))) else ""
            raise errors.FormatError(
                f"{url}: an object there has a name that is no path: {name!a}",
                hint="move that object away, or the checkpoint to another prefix",
            ) from error
        except (kinds.BaseError, OSError, ValueError) as error:
            if _TOKEN in str(error):
                raise errors.RefusedError(f"{url}: no usable credentials", hint=KINDS[self._scheme].access) from error
            # Refused lists have no class of their own; the text names the answer's status and code.
            status, code = (match[1] if (match := sign.search(str(error))) else "" for sign in (_STATUS, _CODE))
            refused = isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError)
            if refused or status in ("401", "403"):
                hint = KINDS[self._scheme].access
                if self._scheme == "s3":
                    hint = denied_hint(operation, self.root.removeprefix("s3://"))
                raise errors.RefusedError(
                    f"{url}: the credentials were refused" + (f" ({code})" if code else ""), hint=hint
                ) from error
            if status == "404":
                raise errors.NotFoundError(
                    f"{self.root}: there is no such bucket", hint=KINDS[self._scheme].buckets
                ) from error
            raise errors.UnavailableError(
                f"{url}: the service does not answer ({code or type(error).__name__})",
                hint="run the same command again in a moment",
            ) from error

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Bucket) and (self.root, self.options) == (value.root, value.options)

    def __hash__(self) -> int:
        return hash((self.root, self.options))


def _retries() -> RetryConfig:
    return {"max_retries": RETRIES, "retry_timeout": PATIENCE, "backoff": _PAUSES}


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
        raise errors.ConfigError(f"{root}: the settings of the service are not complete", hint=hint) from error


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
            raise errors.RefusedError(f"{root}: no credentials", hint=CREDENTIALS_HINT)
        credentials = Boto3CredentialProvider(session)
    own = not endpoint.rstrip("/").endswith((".amazonaws.com", ".amazonaws.com.cn"))
    how: S3Config = {"region": region, "virtual_hosted_style_request": addressing(options) != "path" and not own}
    if own:
        how["endpoint"] = endpoint
    transport: ClientConfig = {"allow_http": True, "read_timeout": _READ_SECONDS, "timeout": PATIENCE}
    if options.ca_bundle:
        transport["root_certificate"] = Path(options.ca_bundle).read_bytes()
    return S3Store(name, config=how, credential_provider=credentials, client_options=transport, retry_config=_retries())


SCHEMES = tuple(KINDS)
"""Schemes of URLs of object storage."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_url(text: str) -> bool:
    """Whether a text names something in object storage."""
    return text.partition("://")[0] in SCHEMES and "://" in text


class _Status(NamedTuple):
    st_size: int


@dataclass(frozen=True)
class BucketPath:
    """A file or folder in a bucket, as it was when its folder was first listed.

    Attributes:
        bucket: that holds it.
        key: names from the bucket's root on, with ``/`` between; empty for the root.
    """

    bucket: Bucket
    key: str = ""

    @classmethod
    def of(cls, url: str, options: StoreOptions = StoreOptions()) -> BucketPath:  # noqa: B008 - a frozen value
        """The path that a URL names; nothing is sent yet."""
        check_address(url, "the checkpoint")
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise errors.ConfigError(f"{url}: not a URL of object storage", hint="write s3://BUCKET/PREFIX")
        names = [name for name in url.split("://", 1)[1].split("/")[1:] if name]
        if any(name in (".", "..") for name in names) or _CONTROL.search(url):
            raise errors.ConfigError(
                f"{url!a}: a prefix has no . and no .., and no control characters", hint="write s3://BUCKET/PREFIX"
            )
        return cls(Bucket(f"{parts.scheme}://{parts.netloc}", options), "/".join(names))

    def __str__(self) -> str:
        return f"{self.bucket.root}/{self.key}".rstrip("/")

    def __lt__(self, other: BucketPath) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str) -> BucketPath:
        return BucketPath(self.bucket, f"{self.key}/{name}".lstrip("/"))

    @property
    def name(self) -> str:
        """The last name; empty for the bucket's root."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """What the last name ends with, from its last dot on."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> BucketPath:
        """The folder that it is in."""
        return BucketPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def listing(self) -> str:
        """The command that shows what a folder holds, with the tool of its service."""
        return self._command("listing")

    @property
    def copying(self) -> str:
        """The command that copies a folder to a disk, with the tool of its service."""
        return self._command("copying")

    def _command(self, which: Literal["listing", "copying"]) -> str:
        scheme, _, bucket = self.bucket.root.partition("://")
        names = {"url": f"{self}/", "bucket": bucket, "key": self.key}
        command: str = getattr(KINDS[scheme], which)
        return command.format_map({name: shlex.quote(text) for name, text in names.items()})

    def with_suffix(self, suffix: str) -> BucketPath:
        """The same with another suffix."""
        return self.parent / PurePosixPath(self.name).with_suffix(suffix).name

    def absolute(self) -> BucketPath:
        """Itself."""
        return self

    def resolve(self) -> BucketPath:
        """Itself: a bucket has no links."""
        return self

    def is_dir(self) -> bool:
        """Whether it is a prefix of objects, and not an object itself."""
        return not self.is_file() and bool(self.bucket.folder(self.key))

    def is_file(self) -> bool:
        """Whether it is an object."""
        entry = self._entry()
        return entry is not None and entry.size is not None

    def exists(self) -> bool:
        """Whether it is an object or a prefix of some."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[BucketPath]:
        """What a folder holds."""
        return (self / name for name in self.bucket.folder(self.key))

    def stat(self) -> _Status:
        """The size of an object."""
        return _Status(self.version()[0])

    def read_bytes(self) -> bytes:
        """The whole object: for small ones."""
        size, etag = self.version()
        return bytes(self.bucket.read(self.key, 0, size, etag)) if size else b""

    def version(self) -> tuple[int, str]:
        """Size and ETag of an object, as they were when its folder was listed."""
        entry = self._entry()
        if entry is None or entry.size is None:
            raise errors.NotFoundError(
                f"{self}: a file of the checkpoint is missing",
                hint=f"copy it there, or write the checkpoint again; see what is there: {self.parent.listing}",
            )
        return entry.size, entry.etag

    def _entry(self) -> Entry | None:
        if not self.key:
            return None
        # The credentials might not reach what lies beside a checkpoint, and it can be much.
        if not self.bucket.knows(self.parent.key) and self.bucket.folder(self.key):
            return Entry(None)
        return self.bucket.folder(self.parent.key).get(self.name)
