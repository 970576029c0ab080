"""Buckets of object storage: how they are reached, what their errors mean, and paths in them that are read as files."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from maskreg.bucket.path import SCHEMES, BucketPath, is_url
from maskreg.errors import UsageError
from maskreg.settings import StoreOptions

Location: TypeAlias = Path | BucketPath
"""A file or folder: on a disk, or in a bucket."""

OptionsOf: TypeAlias = Callable[[str], StoreOptions]
"""How to talk to the service of a URL."""


def located(text: str | Location, options_of: OptionsOf | None = None) -> Location:
    """What a text names: a path, or something in a bucket.

    Args:
        text: a path, or a URL of object storage; a location stays what it is.
        options_of: how to talk to the service of a URL; by default as the AWS chain says.

    Raises:
        ConfigError: a URL that is malformed, or holds a user, a password or a query.
    """
    if not isinstance(text, str):
        return text
    return BucketPath.of(text, options_of(text) if options_of else StoreOptions()) if is_url(text) else Path(text)


def on_disk(location: Location, work: str) -> Path:
    """The path of what has to lie on a disk.

    Args:
        location: where it lies.
        work: what needs it; begins the message, as in "training".

    Raises:
        UsageError: it is in a bucket.
    """
    if isinstance(location, BucketPath):
        raise UsageError(
            f"{work} needs files on a disk, and {location} is in a bucket",
            hint=f"copy it first: aws s3 cp --recursive {location} FOLDER",
        )
    return location


__all__ = ["SCHEMES", "BucketPath", "Location", "OptionsOf", "is_url", "located", "on_disk"]
