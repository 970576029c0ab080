"""What a server that runs jobs is set up with: checkpoints to read, a folder to write to, limits, a signing key."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from maskreg.errors import ConfigError, NotFoundError, QuotaError, UsageError
from maskreg.registry.keys import PrivateKeys, read_private_key, service_key
from maskreg.service.jobs.queue import JobLimits
from maskreg.settings import Settings
from maskreg.settings.file import parse_duration, parse_size
from maskreg.signature import PrivateKey
from maskreg.words import human_bytes

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?", re.ASCII)
_HINT = "write NAME=PATH, or the path of a folder whose subfolders are checkpoints"
_ATTEMPTS = ".attempts"
_MOST = 100_000


def clean_name(text: str, kind: str) -> str:
    """The text, if it is the name of a file or folder and nothing else on any system; ``kind`` says what it names."""
    if _NAME.fullmatch(text) is None or ".." in text:
        raise UsageError(
            f"{text[:80]!r} is not the name of {kind}",
            hint="a name has letters, digits, '.', '_' and '-', and begins with a letter or digit; it is no path",
        )
    return text


@dataclass(frozen=True)
class Sources:
    """The checkpoints that jobs can read, named by the operator; clients cannot give paths.

    Attributes:
        folders: their subfolders are offered too, by their own names; ``named`` goes first.
    """

    named: Mapping[str, Path] = field(default_factory=dict)
    folders: Sequence[Path] = ()

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Sources:
        """Read them from ``NAME=PATH``, or the path of a folder of checkpoints."""
        named: dict[str, Path] = {}
        folders: list[Path] = []
        for text in texts:
            name, separator, path = text.partition("=")
            location = Path(path if separator else text).absolute()
            if not location.exists() or not (separator or location.is_dir()):
                raise ConfigError(f"{text}: there is no such {'checkpoint' if separator else 'folder'}", hint=_HINT)
            if not separator:
                folders.append(location)
                continue
            try:
                clean_name(name, "a checkpoint")
            except UsageError as error:
                raise ConfigError(f"{text}: {error.message}", hint=error.hint) from error
            if name in named:
                raise ConfigError(f"{name} names two checkpoints: {named[name]} and {location}", hint=_HINT)
            named[name] = location
        return cls(named, tuple(folders))

    def offered(self) -> dict[str, Path]:
        """Every checkpoint that is offered now, by name, in the order of names."""
        inside = {
            entry.name: entry
            for folder in reversed(self.folders)
            for entry in (folder.iterdir() if folder.is_dir() else ())
            if entry.is_dir() and _NAME.fullmatch(entry.name) and ".." not in entry.name
        }
        return dict(sorted({**inside, **self.named}.items()))

    def path(self, name: str) -> Path:
        """Where the checkpoint of a name is."""
        offered = self.offered()
        if clean_name(name, "a checkpoint") not in offered:
            known = ", ".join(list(offered)[:20]) or "none"
            raise NotFoundError(f"this server offers no checkpoint called {name}", hint=f"it offers: {known}")
        return offered[name]


@dataclass(frozen=True)
class JobConfig:
    """What workers need to know of a server; it holds no connection and no secret, and is sent to their processes.

    Attributes:
        outputs: the folder where checkpoints are written, as ``PROJECT/NAME``.
    """

    settings: Settings
    remote: str | None
    url: str
    sources: Sources
    outputs: Path
    limits: JobLimits = field(default_factory=JobLimits)
    log_format: str = "json"
    signing_key: str = "none"

    @property
    def attempts(self) -> Path:
        """The folder where attempts write; what is whole is renamed out of it."""
        return self.outputs / _ATTEMPTS

    def check_room(self, project: str, size: int) -> None:
        """Check that the checkpoints of a project leave room for one more of ``size`` bytes."""
        limit = self.limits.bytes_per_project
        if not limit:
            return
        used = sum(path.stat().st_size for path in (self.outputs / project).rglob("*") if path.is_file())
        if used + size > limit:
            have = f"{human_bytes(used)} of {human_bytes(limit)}"
            raise QuotaError(
                f"the outputs of project {project} have {have}, and this one needs {human_bytes(size)}",
                hint="ask the operator to delete outputs",
            )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST:
        raise ValueError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def _seconds(text: str) -> float:
    if (seconds := parse_duration(text).total_seconds()) == 0:
        raise ValueError("no job is done in no time")
    return seconds


LIMITS: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "running": ("running", _number),
    "running-per-project": ("running_per_project", _number),
    "waiting-per-project": ("waiting_per_project", _number),
    "time": ("seconds", _seconds),
    "attempts": ("attempts", _number),
    "bytes-per-project": ("bytes_per_project", lambda text: parse_size(text, "size")),
}
"""The limits as operators write them, ``NAME=VALUE``: the field of each name, and how its value is read."""


def parse_limits(texts: Sequence[str]) -> JobLimits:
    """The limits that follow from ``NAME=VALUE``; what is left out keeps its default."""
    limits = JobLimits()
    for text in texts:
        name, _, value = text.partition("=")
        if name not in LIMITS:
            raise ConfigError(f"{text!r} is no limit of jobs", hint=f"write NAME=VALUE with one of {', '.join(LIMITS)}")
        field_, parse = LIMITS[name]
        try:
            limits = replace(limits, **{field_: parse(value)})  # type: ignore[arg-type]
        except (ValueError, ConfigError) as error:
            raise ConfigError(
                f"{text!r}: {error}", hint="as in running=8, time=2h or bytes-per-project=50GB"
            ) from error
    return limits


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
