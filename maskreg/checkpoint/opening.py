"""Opening a checkpoint by path or hub id."""

from __future__ import annotations

import os
from pathlib import Path

from maskreg.checkpoint.base import Checkpoint, Reopen
from maskreg.checkpoint.formats import FORMATS, format_of
from maskreg.checkpoint.hub import HubId, hub_identity, not_cached, snapshot
from maskreg.errors import FormatError, NotFoundError, UsageError
from maskreg.limits import LIMITS, Limits

_ACCEPTED = ", ".join(known.accepts for known in FORMATS.values()) + ", or a Hugging Face id org/name[@revision]"


def open_checkpoint(
    spec: str | Path, *, download: bool = False, base: str | Path | None = None, limits: Limits = LIMITS
) -> Checkpoint:
    """Open a checkpoint and check everything but the tensors' data, which is read later.

    Args:
        spec: a file or directory of a known format, or a hub id ``org/name[@revision]``; a path that exists wins.
        download: fetch a hub model that is not in the cache; otherwise nothing touches the network.
        base: the model that an adapter was trained on, for one whose own word for it leads nowhere here.
        limits: bounds on what is read.

    Raises:
        UsageError: neither a path nor a text.
        NotFoundError: no such file, directory or cached model, or a part of it is missing.
        FormatError: something that the format forbids.
        LimitError: something larger than the limits allow.
        CorruptError: a file is shorter or longer than it should be.
        UnavailableError: the disk or, with ``download``, the hub does not answer.
        NotAllowedError: not allowed to read it.
        ConfigError: a hub id, and huggingface_hub is not installed.
    """
    if not isinstance(spec, str | os.PathLike):
        raise UsageError(f"{type(spec).__name__} was given; pass a path or a hub id")
    text = os.fspath(spec)
    if not isinstance(text, str):
        raise UsageError("a path of bytes was given; pass text or a Path")

    def reopen(named: str) -> Checkpoint:
        try:
            return _open(named, download, limits, _refuse)
        except NotFoundError:
            if base is None:
                raise
            return _open(os.fspath(base), download, limits, _refuse)

    return _open(text, download, limits, reopen)


def _refuse(named: str) -> Checkpoint:
    raise FormatError(f"{named}: an adapter on an adapter", hint="merge the first one with the package peft")


def _open(text: str, download: bool, limits: Limits, reopen: Reopen) -> Checkpoint:
    if not text.strip():
        raise NotFoundError("the path of the checkpoint is empty", hint=f"a checkpoint is {_ACCEPTED}")
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # Path.expanduser raises for an unknown user
    if os.path.exists(path):  # noqa: PTH110  # Path.exists raises where a parent may not be read
        return format_of(path).open(path, hub=hub_identity(path), limits=limits, reopen=reopen)
    hub = HubId.parse(text)
    link = os.path.islink(path)  # noqa: PTH114  # Path.is_symlink raises for a name that is too long
    if hub is None or link:
        fault = "a dangling link" if link else "no such file or directory"
        raise NotFoundError(f"{text}: {fault}", hint=f"a checkpoint is {_ACCEPTED}")
    return _open_cached(hub, download, limits, reopen)


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
