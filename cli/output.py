"""What a command prints: data to stdout; notes, errors and progress to stderr."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from maskreg.ref import printable

from .next_step import next_step

if TYPE_CHECKING:
    from maskreg.errors import MaskregError
    from maskreg.progress import Progress

    from .progress import Line


class DeclinedError(Exception):
    """The user answered a question with no, before anything was changed."""


def told(text: str, error: MaskregError, between: str = "\n  next: ") -> str:
    """A text, and behind it, by default on a line below, what to do about an error."""
    return f"{text}{between}{step}" if (step := next_step(error)) else text


@dataclass
class Output:
    """The output of one process; commands share it through click's context.

    Attributes:
        json: print data as JSON, not as text.
        quiet: print no notes and no progress.
        debug: print tracebacks, not one line per error.
        context: the command line that was parsed; None before.
        reported: the command has printed its failure as JSON itself.
        command: name of the command that runs.
        line: what says that the command is at work, where people watch.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    context: click.Context | None = None
    reported: bool = False
    command: str = ""
    line: Line | None = None

    def data(self, text: str) -> None:
        """Print one or more lines of data, with everything escaped that a terminal would obey or not show."""
        self.make_room()
        click.echo(printable(text, keep="\n\t"))

    def value(self, text: str) -> None:
        """Print one value, such as a path; as it is where another program reads it."""
        self.make_room()
        # As bytes, because a path need not be text in any encoding.
        click.echo(printable(text) if sys.stdout.isatty() else os.fsencode(text))

    def document(self, value: object) -> None:
        """Print one JSON document, indented on a terminal."""
        self.make_room()
        # Only ASCII, which every locale can encode; a path can hold any bytes.
        click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))

    def printed(self, result: Any) -> bool:
        """Print a result as JSON, if that was asked for; False where the command has to say it in words."""
        if self.json:
            rows = not hasattr(result, "to_json") and isinstance(result, list | tuple)
            values = [getattr(row, "to_json", lambda row=row: row)() for row in (result if rows else [result])]
            self.document(values if rows else values[0])
        return self.json

    def answer(self, result: Any) -> None:
        """Print a result as JSON and end the command, if that was asked for; else the command says it in words."""
        if self.printed(result):
            raise click.exceptions.Exit(0)

    def tell(self, result: Any, sentence: str) -> None:
        """Print a result as JSON, or a remark about it."""
        if not self.printed(result):
            self.note(sentence)

    def record(self, value: object) -> None:
        """Print one line of NDJSON, and flush it."""
        self.make_room()
        click.echo(json.dumps(value))

    def note(self, said: str | MaskregError) -> None:
        """Print a remark, or an error that stops nothing, to stderr, unless quiet."""
        if not self.quiet:
            self.warn(said if isinstance(said, str) else told(said.message, said))

    def warn(self, text: str) -> None:
        """Print to stderr what is missing from the data, even if quiet."""
        self.make_room()
        click.echo(printable(text, keep="\n\t"), err=True)

    def remark(self, said: str | MaskregError) -> None:
        """Print a remark of a use case to stderr, unless quiet."""
        if not self.quiet:
            self.note(f"note: {said}" if isinstance(said, str) else told(f"note: {said.message}", said, "; next: "))

    def notes(self, notes: Iterable[str]) -> None:
        """Print remarks about a result to stderr, unless quiet."""
        for note in notes:
            self.note(f"note: {note}")

    def note_files(self, out: object, *, kept: Sequence[str], skipped: Sequence[str] = ()) -> None:
        """Say which files beside the source were not copied, and which files of an earlier output stayed."""
        if skipped:
            self.note(f"not copied: {', '.join(skipped)}")
        if kept:
            self.note(f"kept in {out}: {', '.join(kept)}")

    def damage(self, text: str, error: MaskregError | None) -> None:
        """Print what is wrong as data, and the next step below it."""
        self.data(text if error is None else told(text, error))

    def failure(self, message: str, hint: str = "") -> None:
        """Print an error and the next step to stderr."""
        self.make_room()
        click.echo(printable(f"error: {message}", keep="\n\t"), err=True)
        if hint:
            click.echo(printable(f"  next: {hint}", keep="\n\t"), err=True)

    def make_room(self) -> None:
        """Wipe the line that says that the command is at work, because something is printed now."""
        if self.line is not None:
            self.line.clear()

    def ask(self, question: str) -> bool:
        """Ask a question on stderr, with nothing drawn beside it; True for yes."""
        with self.alone():
            if not click.confirm(question, err=True):
                raise DeclinedError
            return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Draw nothing inside: something else has the terminal."""
        if self.line is not None:
            self.line.hide()
        try:
            yield
        finally:
            if self.line is not None:
                self.line.show()

    @contextmanager
    def at_work(self, command: str) -> Iterator[None]:
        """Say at a terminal that a command is at work when it prints nothing for long, unless quiet."""
        self.command = command
        if self.quiet or not sys.stderr.isatty() or os.environ.get("TERM", "xterm") in ("", "dumb"):
            yield
            return
        from .progress import Line

        with Line(command, in_place=True, after_pipe=is_pipe(sys.stdin)) as self.line:
            try:
                yield
            finally:
                self.line = None

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """The line at a terminal, a line now and then elsewhere; if quiet, a listener that says nothing."""
        if self.quiet:
            from maskreg.progress import SILENT

            yield SILENT
        elif self.line is not None:
            yield self.line
        else:
            from .progress import Line

            with Line(self.command, in_place=False) as line:
                yield line


def is_pipe(stream: TextIO | None) -> bool:
    """Whether a stream of this process is a pipe; not where it is closed, or something of Python's that is no file."""
    try:
        return stream is not None and stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False
