"""Paths in buckets, with those methods of :class:`pathlib.Path` that reading a checkpoint needs.

Code that reads checkpoints takes either kind, and never asks which it is::

    folder = Path("run/step-60")                  a folder on a disk
    folder = BucketPath.of("s3://team/run/step-60")   a prefix in a bucket
    for entry in folder.iterdir(): ...            both
    open_regular(folder / "model.safetensors")    both
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from maskreg.bucket.connection import Bucket, Entry
from maskreg.bucket.services import KINDS
from maskreg.errors import ConfigError, NotFoundError
from maskreg.settings import StoreOptions
from maskreg.settings.urls import check_address

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
        """The path that a URL names; nothing is sent yet.

        Args:
            url: ``s3://bucket/prefix``, ``gs://`` or ``az://``.
            options: how to talk to an S3 service.

        Raises:
            ConfigError: not such a URL, or one with a user, a password or a query.
        """
        check_address(url, "the checkpoint")
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise ConfigError(f"{url}: not a URL of object storage", hint="write s3://BUCKET/PREFIX")
        names = [name for name in url.split("://", 1)[1].split("/")[1:] if name]
        if any(name in (".", "..") for name in names) or _CONTROL.search(url):
            raise ConfigError(
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
        scheme, _, container = self.bucket.root.partition("://")
        return KINDS[scheme].listing(container, self.key)

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
        """The size of an object.

        Raises:
            NotFoundError: there is none.
        """
        return _Status(self.version()[0])

    def read_bytes(self) -> bytes:
        """The whole object: for small ones."""
        size, etag = self.version()
        return bytes(self.bucket.read(self.key, 0, size, etag)) if size else b""

    def version(self) -> tuple[int, str]:
        """Size and ETag of an object, as they were when its folder was listed.

        Raises:
            NotFoundError: there is none.
        """
        entry = self._entry()
        if entry is None or entry.size is None:
            raise NotFoundError(
                f"{self}: a file of the checkpoint is missing",
                hint=f"copy it there, or write the checkpoint again; see what is there: {self.parent.listing}",
            )
        return entry.size, entry.etag

    def _entry(self) -> Entry | None:
        if not self.key:
            return None
        # Not everybody may list what lies beside a checkpoint, and it may be much.
        if not self.bucket.knows(self.parent.key) and self.bucket.folder(self.key):
            return Entry(None)
        return self.bucket.folder(self.parent.key).get(self.name)
