"""Models on the Hugging Face hub, through the cache of its own library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskreg.checkpoint.companions import SMALL_FILES
from maskreg.errors import NotAllowedError, NotFoundError, UnavailableError
from maskreg.extras import requiring

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_ID = re.compile(rf"(?P<repo>{_PART}/[A-Za-z0-9_](?:[A-Za-z0-9._-]{{0,94}}[A-Za-z0-9_])?)(?:@(?P<rev>.+))?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,254}")
_SNAPSHOT = re.compile(rf"models--(?P<org>{_PART})--(?P<name>.+)/snapshots/(?P<commit>[0-9a-f]{{40}})")
_SMALL_FILES = [*SMALL_FILES, "LICEN[CS]E*", "NOTICE*"]
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


def snapshot(hub: HubId, weights: Sequence[str], *, download: bool) -> Path:
    """The directory in the hub's cache that holds a model's files.

    Args:
        hub: the model.
        weights: patterns of its weight files.
        download: ask the hub and fetch what is missing; otherwise nothing touches the network.

    Raises:
        ConfigError: huggingface_hub is not installed.
        NotFoundError: not in the cache, or not on the hub.
        NotAllowedError: the hub wants a login or an accepted license.
        UnavailableError: the hub does not answer.
    """
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
                allow_patterns=[*weights, *_SMALL_FILES],
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
    """The error for a model that is not complete in the cache, with the command that fetches it."""
    revision = f" --revision {hub.revision}" if hub.revision else ""
    return NotFoundError(
        f"{hub}: no such path, and not complete in the Hugging Face cache",
        hint=f"add --download, or run: hf download {hub.repo}{revision}",
    )
