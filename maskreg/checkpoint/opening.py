"""Opening a checkpoint by path, URL or hub id: the table of formats, and the cache of the Hugging Face library."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from maskreg.bucket import BucketPath, Location, OptionsOf, located
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import SMALL_FILES
from maskreg.checkpoint.layouts import (
    INDEX_NAME,
    TORCH_INDEX_NAME,
    TORCH_NAME,
    is_dcp,
    is_fsdp,
    is_safetensors,
    is_torch,
)
from maskreg.checkpoint.safetensors import SINGLE_NAME
from maskreg.checkpoint.safetensors import open_path as open_safetensors
from maskreg.errors import NotAllowedError, NotFoundError, UnavailableError, UsageError
from maskreg.extras import requiring

FORMATS: Mapping[str, tuple[str, Callable[[Location], bool]]] = {
    "safetensors": (f"a .safetensors file, a directory with {SINGLE_NAME} or {INDEX_NAME}", is_safetensors),
    "dcp": ("a distributed PyTorch checkpoint (.metadata and .distcp files)", is_dcp),
    "fsdp": ("a directory with model_world_size_N_rank_K.pt of every process", is_fsdp),
    "torch": (f"a state dict of torch.save (.bin, .pt), a directory with {TORCH_NAME} or {TORCH_INDEX_NAME}", is_torch),
}
"""Every format by its stable, lower-case name: what a path must be, for messages, and whether a file or directory that
exists is of it, judged by names. The first that recognizes a path opens it."""


def _opened(path: Location, hub: str = "") -> Checkpoint:
    """The checkpoint in a file or directory that exists; one of an unknown format is said to lack safetensors."""
    name = next((name for name, (_, recognize) in FORMATS.items() if recognize(path)), "safetensors")
    if name == "safetensors":
        return open_safetensors(path, hub=hub)
    # Few commands meet other formats: their readers are imported when they are needed.
    if name == "dcp":
        from maskreg.checkpoint import dcp

        return dcp.open_path(path, hub=hub)
    from maskreg.checkpoint.torch_files import open_path, open_ranks

    return (open_ranks if name == "fsdp" else open_path)(path, hub=hub)


_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_ID = re.compile(rf"(?P<repo>{_PART}/[A-Za-z0-9_](?:[A-Za-z0-9._-]{{0,94}}[A-Za-z0-9_])?)(?:@(?P<rev>.+))?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,254}")
_SNAPSHOT = re.compile(rf"models--(?P<org>{_PART})--(?P<name>.+)/snapshots/(?P<commit>[0-9a-f]{{40}})")
_DOWNLOADED = ["*.safetensors", INDEX_NAME, *SMALL_FILES, "LICEN[CS]E*", "NOTICE*"]
# A pattern's * also matches slashes: without this, weights in other layouts would be downloaded too.
_IGNORED = ["*/*", "consolidated*"]


@dataclass(frozen=True)
class HubId:
    """A model on the hub.

    Attributes:
        repo: ``org/name``.
        revision: branch, tag or commit; empty for the default branch.
    """

    repo: str
    revision: str = ""

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """``org/name[@revision]``, or None when ``text`` does not look like one."""
        match = _ID.fullmatch(text)
        # The hub forbids "--", which stands for the slash in names of its cache's folders.
        if not match or ".." in text or "--" in match["repo"]:
            return None
        revision = match["rev"] or ""
        return cls(match["repo"], revision) if not revision or _REVISION.fullmatch(revision) else None

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}" if self.revision else self.repo


def hub_identity(snapshot: Path) -> str:
    """``org/name@commit`` of a directory in the hub's cache, or of a file in one; empty for any other path.

    The cache keeps a commit's files in ``models--ORG--NAME/snapshots/COMMIT/``, so the path alone names them: no
    lookup, and no network. The path is not resolved, because a snapshot's files are links to ``blobs/SHA256``.
    """
    path = snapshot.absolute()
    for folder in (path, path.parent):
        match = _SNAPSHOT.fullmatch("/".join(folder.parts[-3:]))
        if match:
            return f"{match['org']}/{match['name']}@{match['commit']}"
    return ""


def snapshot(hub: HubId, *, download: bool) -> Path:
    """The directory in the hub's cache that holds a model's files."""
    with requiring(f"{hub}: reading a model from the Hugging Face hub"):
        import huggingface_hub
        from huggingface_hub import errors
    # The library changed its HTTP client between versions; its own error derives from that client's root.
    transport: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    try:
        return Path(
            huggingface_hub.snapshot_download(
                hub.repo,
                revision=hub.revision or None,
                allow_patterns=_DOWNLOADED,
                ignore_patterns=_IGNORED,
                local_files_only=not download,
            )
        )
    except errors.LocalEntryNotFoundError as error:
        if not download:
            raise not_cached(hub) from error
        raise UnavailableError(f"{hub}: not in the cache, and the hub does not answer") from error
    except errors.GatedRepoError as error:
        raise NotAllowedError(f"{hub}: the model is gated", hint="hf auth login") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise NotFoundError(
            f"{hub}: no such model or revision on the hub, or a private one", hint="hf auth login"
        ) from error
    except errors.HFValidationError as error:
        raise NotFoundError(f"{hub}: not a valid name on the hub") from error
    except (transport, OSError) as error:
        raise UnavailableError(f"{hub}: the download failed ({error})") from error


def not_cached(hub: HubId) -> NotFoundError:
    """The error for a model that is not complete in the cache, with the hub's command that fetches it."""
    fetch = f"hf download {hub.repo} --revision {hub.revision}" if hub.revision else f"hf download {hub.repo}"
    return NotFoundError(
        f"{hub}: no such path, and not complete in the Hugging Face cache",
        hint=f"run {fetch}, or have it downloaded",
        options={"download": True},
    )


_ACCEPTED = ", ".join(accepts for accepts, _ in FORMATS.values()) + (
    ", safetensors in a bucket (s3://BUCKET/PREFIX), or a Hugging Face id org/name[@revision]"
)


def open_checkpoint(spec: str | Location, *, download: bool = False, options_of: OptionsOf | None = None) -> Checkpoint:
    """Open a checkpoint and check everything but the tensors' data, which is read later.

    ``spec``: a file or directory of a known format, the URL of one in a bucket, or a hub id ``org/name[@revision]``; a
    path that exists wins. ``download``: fetch a hub model that is not in the cache; otherwise the hub is not asked.
    ``options_of``: how to talk to the service of a bucket, by URL; by default as the AWS chain says.
    """
    return _open(_located(spec, options_of), download)


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


def _open(location: BucketPath | str, download: bool) -> Checkpoint:
    if isinstance(location, BucketPath):
        if not location.exists():
            raise NotFoundError(f"{location}: no such object or prefix", hint=_listing(location))
        return _opened(location)
    text = location
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # Path.expanduser raises for an unknown user
    if os.path.exists(path):  # noqa: PTH110  # Path.exists raises where a parent cannot be read
        return _opened(path, hub_identity(path))
    hub = HubId.parse(text)
    link = os.path.islink(path)  # noqa: PTH114  # Path.is_symlink raises for a name that is too long
    if hub is None or link:
        fault = "a dangling link" if link else "no such file or directory"
        raise NotFoundError(f"{text}: {fault}", hint=f"a checkpoint is {_ACCEPTED}")
    directory = snapshot(hub, download=download)
    try:
        return _opened(directory, hub_identity(directory))
    except NotFoundError as error:
        # An interrupted download leaves a directory without some of its files.
        if download:
            raise
        raise not_cached(hub) from error


def _listing(location: BucketPath) -> str:
    """The next step where there is nothing: to see what is in the nearest prefix that exists."""
    folder = location.parent
    while folder.key and not folder.exists():
        folder = folder.parent
    return f"see what is there: {folder.listing}"
