"""What a server that runs jobs is set up with: checkpoints to read, a folder to write to, limits, a signing key."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from maskreg.errors import ConfigError, NotFoundError, UsageError
from maskreg.registry.keys import PrivateKeys, read_private_key, service_key
from maskreg.settings import Settings
from maskreg.signature import PrivateKey

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?", re.ASCII)
_ATTEMPTS = ".attempts"

LONGEST_S = 6 * 3600.0
"""How long an attempt can take by default, in seconds."""


def clean_name(text: str, kind: str) -> str:
    """The text, if it is the name of a file or folder and nothing else on any system; ``kind`` says what it names."""
    if _NAME.fullmatch(text) is None or ".." in text:
        raise UsageError(
            f"{text[:80]!r} is not the name of {kind}",
            hint="a name has letters, digits, '.', '_' and '-', and begins with a letter or digit; it is no path",
        )
    return text


@dataclass(frozen=True)
class JobConfig:
    """What workers need to know of a server; it holds no connection and no secret, and is sent to their processes.

    Attributes:
        sources: folders whose subfolders are checkpoints that jobs can read; clients cannot give paths.
        outputs: the folder where checkpoints are written, as ``PROJECT/NAME``.
        seconds: the longest that an attempt can take.
    """

    settings: Settings
    remote: str | None
    url: str
    sources: tuple[Path, ...]
    outputs: Path
    seconds: float = LONGEST_S
    signing_key: str = "none"

    @property
    def attempts(self) -> Path:
        """The folder where attempts write; what is whole is renamed out of it."""
        return self.outputs / _ATTEMPTS

    def offered(self) -> dict[str, Path]:
        """Every checkpoint that is offered now, by name, in the order of names; folders named first win."""
        inside = {
            entry.name: entry
            for folder in reversed(self.sources)
            for entry in (folder.iterdir() if folder.is_dir() else ())
            if entry.is_dir() and _NAME.fullmatch(entry.name) and ".." not in entry.name
        }
        return dict(sorted(inside.items()))

    def source(self, name: str) -> Path:
        """Where the checkpoint of a name is."""
        offered = self.offered()
        if clean_name(name, "a checkpoint") not in offered:
            raise NotFoundError(f"this server offers no checkpoint called {name}", job_sources=True)
        return offered[name]


def signer_of(signing_key: str, settings: Settings, remote: str | None) -> PrivateKey | None:
    """What signs for accounts that have tokens and no key: the server's own key, one that it was given, or none."""
    if signing_key == "none":
        return None
    if not signing_key:
        return service_key(settings.home) if remote is None else None
    path = Path(signing_key)
    try:
        private = read_private_key(path)
    except OSError as error:
        hint = f"ls -l {shlex.quote(str(path))}"
        raise ConfigError(f"{path}: the signing key cannot be read: {error.strerror}", hint=hint) from error
    PrivateKeys(settings.home).add(private)
    return private
