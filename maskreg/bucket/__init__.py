"""Buckets of object storage: how they are reached, what their errors mean, and paths in them that are read as files."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from maskreg.bucket.path import SCHEMES, BucketPath, is_url
from maskreg.errors import ConfigError, UsageError
from maskreg.settings import StoreOptions

Location: TypeAlias = Path | BucketPath
"""A file or folder: on a disk, or in a bucket."""

_NEARLY = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*)://|({'|'.join(SCHEMES)}):/")
"""How a text begins that was meant as a URL, and is none of object storage."""

OptionsOf: TypeAlias = Callable[[str], StoreOptions]
"""How to talk to the service of a URL."""


def located(text: str | Location, options_of: OptionsOf | None = None) -> Location:
    """What a text names: a path, or something in a bucket."""
    if not isinstance(text, str):
        return text
    if not is_url(text) and (meant := _NEARLY.match(text)):
        raise ConfigError(
            f"{meant[0]}... is not a URL of object storage", hint="write s3://, gs:// or az://BUCKET/PREFIX"
        )
    return BucketPath.of(text, options_of(text) if options_of else StoreOptions()) if is_url(text) else Path(text)


def on_disk(location: Location, work: str) -> Path:
    """The path of what has to lie on a disk."""
    if isinstance(location, BucketPath):
        raise UsageError(
            f"{work} needs files on a disk, and {location} is in a bucket", hint=f"copy it first: {location.copying}"
        )
    return location


__all__ = ["SCHEMES", "BucketPath", "Location", "OptionsOf", "is_url", "located", "on_disk"]
