"""The table from error to exit code, and how an error is shown to people and programs."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from maskreg import errors

from .next_step import next_step, of_command
from .output import DeclinedError

BUG = 70
CANNOT_WRITE = 73
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143

EXITS: Mapping[type[BaseException], int] = {
    errors.UsageError: 2,
    click.ClickException: 2,
    errors.DataError: 65,
    errors.NotFoundError: 66,
    errors.UnavailableError: 69,
    errors.WorkerError: BUG,
    errors.CannotCreateError: 73,
    errors.TryAgainError: 75,
    errors.NotAllowedError: 77,
    errors.ConfigError: 78,
    DeclinedError: 1,
    click.Abort: INTERRUPTED,
    KeyboardInterrupt: INTERRUPTED,
    BrokenPipeError: BROKEN_PIPE,
}
"""Exit code by error family; looked up along the error's base classes, so a leaf has its family's."""

_SYSTEM: Mapping[int, tuple[int, str]] = {
    errno.ENOSPC: (73, "NO_SPACE"),
    errno.EDQUOT: (73, "NO_SPACE"),
    errno.EROFS: (73, "CANNOT_CREATE"),
    # The errno does not tell reading from writing; commands that write raise CannotCreateError themselves.
    errno.ENAMETOOLONG: (66, "NOT_FOUND"),
    errno.ELOOP: (66, "NOT_FOUND"),
    errno.ENOTDIR: (66, "NOT_FOUND"),
    errno.EISDIR: (66, "NOT_FOUND"),
    errno.EACCES: (77, "DENIED"),
    errno.EPERM: (77, "DENIED"),
}
"""Exit code and identifier of operating system errors, by errno."""


@dataclass(frozen=True)
class Failure:
    """A failed command.

    Attributes:
        code: stable upper-case identifier for programs.
        message: what went wrong.
        hint: one runnable next step; can be empty.
        exit: the process's exit code.
        facts: what the error is about, as JSON values.
    """

    code: str
    message: str
    hint: str
    exit: int
    facts: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The error object of ``--json``, without its ``error`` envelope."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "exit": self.exit, "facts": self.facts}


def failure(error: BaseException, context: click.Context | None = None) -> Failure:
    """Message, next step and exit code of what a command raised; ``context`` belongs to a command that has ended."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, SystemExit | KeyboardInterrupt):
        # Python 3.11 says so of a signal that arrives while a class is made, as in an import.
        error = error.__cause__
    described = _described(error, context)
    # Ctrl-C has become an exit by now. Notes of other errors are tracebacks, for developers.
    cause = error.__cause__ or error
    if not isinstance(cause, SystemExit | KeyboardInterrupt):
        return described
    return replace(described, message="; ".join([described.message, *getattr(cause, "__notes__", ())]))


def _has_directory() -> bool:
    """Whether the current directory still exists."""
    try:
        return Path.cwd().is_dir()
    except FileNotFoundError:
        return False


def _described(error: BaseException, context: click.Context | None) -> Failure:
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 1
        names = {INTERRUPTED: "interrupted", TERMINATED: "terminated", BROKEN_PIPE: "broken pipe"}
        message = names.get(status, f"exit {status}")
        return Failure(message.upper().replace(" ", "_"), message, "", status)
    if isinstance(error, OSError) and not isinstance(error, errors.MaskregError) and (error.errno or 0) in _SYSTEM:
        status, code = _SYSTEM[error.errno or 0]
        if code == "NO_SPACE":
            return Failure(code, f"{error.filename or 'the output'}: {error.strerror}", "", status)
        return Failure(code, str(error), "", status)
    if isinstance(error, FileNotFoundError) and not isinstance(error, errors.MaskregError) and not _has_directory():
        return Failure("NOT_FOUND", "the current directory was deleted", "cd, and run the command again", 66)
    status = next((EXITS[kind] for kind in type(error).__mro__ if kind in EXITS), BUG)
    if isinstance(error, errors.MaskregError):
        with of_command(context):
            return Failure(error.code, error.message, next_step(error), status, errors.plain_facts(error.facts))
    if isinstance(error, click.ClickException):
        return Failure("USAGE", " ".join(error.format_message().split()).removesuffix("."), _help_line(error), status)
    if isinstance(error, DeclinedError):
        return Failure("DECLINED", "nothing was changed", "", status)
    if status == INTERRUPTED:
        return Failure("INTERRUPTED", "interrupted", "", status)
    return Failure("BUG", f"{type(error).__name__}: {error}", "", status)


def _help_line(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{context.command_path if context else 'maskreg'} --help"
