"""The checkpoints that jobs may read: those that whoever runs the server has named, and no path of a client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maskreg.errors import ConfigError, NotFoundError, UsageError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?", re.ASCII)
_HINT = "write NAME=PATH, or the path of a folder whose subfolders are checkpoints"


def clean_name(text: str, kind: str) -> str:
    """The text, if it is the name of a file or folder and nothing else on any system.

    Args:
        text: from outside.
        kind: what it is to name, for the message.

    Raises:
        UsageError: it is a path, hidden, or has other characters than letters, digits, '.', '_' and '-'.
    """
    if _NAME.fullmatch(text) is None or ".." in text:
        raise UsageError(
            f"{text[:80]!r} is not the name of {kind}",
            hint="a name has letters, digits, '.', '_' and '-', and begins with a letter or digit; it is no path",
        )
    return text


@dataclass(frozen=True)
class Sources:
    """The checkpoints that a server offers, by name.

    Attributes:
        named: paths by name.
        folders: their subfolders are offered too, by their own names; ``named`` goes first.
    """

    named: Mapping[str, Path] = field(default_factory=dict)
    folders: Sequence[Path] = ()

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Sources:
        """Read them from ``NAME=PATH``, or the path of a folder of checkpoints.

        Raises:
            ConfigError: a name that is no name or was given twice, or a path where nothing is.
        """
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

    def texts(self) -> list[str]:
        """What :meth:`parse` reads back."""
        return [*(f"{name}={path}" for name, path in self.named.items()), *map(str, self.folders)]

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
        """Where the checkpoint of a name is.

        Raises:
            UsageError: not a name.
            NotFoundError: it is not offered.
        """
        offered = self.offered()
        if clean_name(name, "a checkpoint") not in offered:
            known = ", ".join(list(offered)[:20]) or "none"
            raise NotFoundError(f"this server offers no checkpoint called {name}", hint=f"it offers: {known}")
        return offered[name]
