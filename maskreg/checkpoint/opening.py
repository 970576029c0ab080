"""Opening a checkpoint by path or hub id."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from maskreg.bucket import BucketPath, Location, OptionsOf, located
from maskreg.checkpoint.base import Checkpoint, Reopen
from maskreg.checkpoint.formats import FORMATS, format_of
from maskreg.checkpoint.hub import HubId, hub_identity, not_cached, snapshot
from maskreg.errors import ConfigError, FormatError, NotFoundError, UsageError
from maskreg.limits import LIMITS, Limits

_ACCEPTED = ", ".join(known.accepts for known in FORMATS.values()) + (
    ", one of these in a bucket (s3://BUCKET/PREFIX), or a Hugging Face id org/name[@revision]"
)


def open_checkpoint(
    spec: str | Location,
    *,
    download: bool = False,
    base: str | Location | None = None,
    limits: Limits = LIMITS,
    options_of: OptionsOf | None = None,
) -> Checkpoint:
    """Open a checkpoint and check everything but the tensors' data, which is read later.

    Args:
        spec: a file or directory of a known format, the URL of one in a bucket, or a hub id ``org/name[@revision]``; a
            path that exists wins.
        download: fetch a hub model that is not in the cache; otherwise the hub is not asked.
        base: the model that an adapter was trained on, for one whose own word for it leads nowhere here.
        limits: bounds on what is read.
        options_of: how to talk to the service of a bucket, by URL; by default as the AWS chain says.

    Raises:
        UsageError: neither a path nor a text.
        NotFoundError: no such file, directory, object or cached model, or a part of it is missing.
        FormatError: something that the format forbids.
        LimitError: something larger than the limits allow.
        CorruptError: a file is shorter or longer than it should be.
        UnavailableError: the disk, the bucket or, with ``download``, the hub does not answer.
        NotAllowedError: not allowed to read it.
        ConfigError: a hub id or a URL, and the package that reads those is not installed.
    """
    find = partial(_located, options_of=options_of)
    location = find(spec)

    def reopen(named: str) -> Checkpoint:
        try:
            return _open(find(named), download, limits, _refuse)
        except (NotFoundError, ConfigError):
            if base is None:
                raise
            return _open(find(base), download, limits, _refuse)

    return _open(location, download, limits, reopen)


def _located(spec: str | Location, options_of: OptionsOf | None) -> BucketPath | str:
    """Where a checkpoint is: in a bucket, or what the text says, a path or a hub id."""
    if isinstance(spec, BucketPath):
        return spec
    if not isinstance(spec, str | os.PathLike):
        raise UsageError(f"{type(spec).__name__} was given; pass a path, a URL or a hub id")
    text = os.fspath(spec)
    if not isinstance(text, str):
        raise UsageError("a path of bytes was given; pass text or a Path")
    if not text.strip():
        raise NotFoundError("the path of the checkpoint is empty", hint=f"a checkpoint is {_ACCEPTED}")
    location = located(text, options_of)
    # A path keeps what Path would drop: "./org/name" is no hub id.
    return location if isinstance(location, BucketPath) else text


def _refuse(named: str) -> Checkpoint:
    raise FormatError(f"{named}: an adapter on an adapter", hint="merge the first one with the package peft")


def _open(location: BucketPath | str, download: bool, limits: Limits, reopen: Reopen) -> Checkpoint:
    if isinstance(location, BucketPath):
        if not location.exists():
            raise NotFoundError(f"{location}: no such object or prefix", hint=_listing(location))
        return format_of(location).open(location, hub="", limits=limits, reopen=reopen)
    text = location
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # Path.expanduser raises for an unknown user
    if os.path.exists(path):  # noqa: PTH110  # Path.exists raises where a parent may not be read
        return format_of(path).open(path, hub=hub_identity(path), limits=limits, reopen=reopen)
    hub = HubId.parse(text)
    link = os.path.islink(path)  # noqa: PTH114  # Path.is_symlink raises for a name that is too long
    if hub is None or link:
        fault = "a dangling link" if link else "no such file or directory"
        raise NotFoundError(f"{text}: {fault}", hint=f"a checkpoint is {_ACCEPTED}")
    return _open_cached(hub, download, limits, reopen)


def _listing(location: BucketPath) -> str:
    """The next step where there is nothing: to see what is in the nearest prefix that exists."""
    folder = location.parent
    while folder.key and not folder.exists():
        folder = folder.parent
    return f"see what is there: {folder.listing}"


def _open_cached(hub: HubId, download: bool, limits: Limits, reopen: Reopen) -> Checkpoint:
    patterns = [pattern for known in FORMATS.values() for pattern in known.hub_files]
    directory = snapshot(hub, patterns, download=download)
    try:
        return format_of(directory).open(directory, hub=hub_identity(directory), limits=limits, reopen=reopen)
    except NotFoundError as error:
        # An interrupted download leaves a directory without some of its files.
        if download:
            raise
        raise not_cached(hub) from error
