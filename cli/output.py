"""Where a command's words go: data to stdout, talk and progress to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from maskreg.ref import printable

if TYPE_CHECKING:
    from maskreg.progress import Progress


@dataclass
class Output:
    """How one run of the program talks; shared by every command through click's context.

    Attributes:
        json: data as JSON instead of text for people.
        quiet: no notes, no progress.
        debug: tracebacks instead of one line.
        ref: the reference that the command works on, for hints; empty while there is none.
        reported: the command has told programs about its failure itself.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    ref: str = ""
    reported: bool = False

    def data(self, text: str) -> None:
        """Write a line or more of data to stdout."""
        click.echo(text)

    def document(self, value: object) -> None:
        """Write one JSON document to stdout, indented when somebody watches."""
        # ASCII only, so that any path and any locale survive.
        click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))

    def record(self, value: object) -> None:
        """Write one line of NDJSON to stdout, and push it on its way."""
        click.echo(json.dumps(value))

    def note(self, text: str) -> None:
        """Tell people something that is not data, unless they asked for quiet."""
        if not self.quiet:
            click.echo(printable(text, keep="\n\t"), err=True)

    def wait(self, compiled: bool) -> None:
        """Tell people who watch why nothing moves when the codec must be compiled first."""
        if not compiled and sys.stderr.isatty():
            self.note("compiling the codec for this machine, once; this takes some 20 seconds")

    def failure(self, message: str, hint: str = "") -> None:
        """Tell people what went wrong, and the next step."""
        click.echo(printable(f"error: {message}", keep="\n\t"), err=True)
        if hint:
            click.echo(printable(f"  next: {hint}", keep="\n\t"), err=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A listener for work that may take long; draws only for people who watch."""
        from maskreg.progress import SILENT

        if self.quiet or not sys.stderr.isatty():
            yield SILENT
            return
        from .bars import Bars

        with Bars() as bars:
            yield bars


def human_bytes(count: float) -> str:
    """A size for people: ``1.2 GiB``."""
    if count < 1024:
        return f"{int(count)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1023.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"
