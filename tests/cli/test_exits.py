"""The table from error to exit code."""

from __future__ import annotations

import errno

import click
import pytest
from maskreg_cli.exits import BUG, EXITS, failure

from maskreg import errors
from maskreg.errors import MaskregError


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.BadRefError("x"), 2, "NAME_INVALID"),
        (click.UsageError("no such option"), 2, "USAGE"),
        (errors.CorruptError("key", "cut"), 65, "DIGEST_MISMATCH"),
        (errors.PipeError("empty"), 65, "PIPE_INVALID"),
        (errors.WrongCheckpointError("t", "differs"), 65, "SOURCE_MISMATCH"),
        (errors.NotFoundError("x"), 66, "NOT_FOUND"),
        (errors.PartAbsentError("x"), 66, "PART_ABSENT"),
        (errors.UnavailableError("x"), 69, "UNAVAILABLE"),
        (errors.OutputExistsError("x"), 73, "OUTPUT_EXISTS"),
        (errors.NoSpaceError("x"), 73, "NO_SPACE"),
        (errors.ConflictError("x"), 75, "CONFLICT"),
        (errors.NotAllowedError("x"), 77, "DENIED"),
        (errors.ConfigError("x"), 78, "CONFIG"),
        (errors.WorkerError("x"), BUG, "WORKER_FAILED"),
        (OSError(errno.ENOSPC, "no space"), 73, "NO_SPACE"),
        (OSError(errno.ENAMETOOLONG, "too long", "/x"), 66, "NOT_FOUND"),
        (OSError(errno.ELOOP, "links in a circle", "/x"), 66, "NOT_FOUND"),
        (NotADirectoryError(errno.ENOTDIR, "a file on the way", "/x"), 66, "NOT_FOUND"),
        (IsADirectoryError(errno.EISDIR, "a directory", "/x"), 66, "NOT_FOUND"),
        (PermissionError(errno.EACCES, "denied", "/x"), 77, "DENIED"),
        (KeyboardInterrupt(), 130, "INTERRUPTED"),
        (click.Abort(), 130, "INTERRUPTED"),
        (BrokenPipeError(), 141, "BUG"),
        (SystemExit(143), 143, "TERMINATED"),
        (FileNotFoundError(errno.ENOENT, "a room forgot to say this in its own words"), BUG, "BUG"),
        (ZeroDivisionError("x"), BUG, "BUG"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_every_family_has_its_exit_code(error: BaseException, status: int, code: str) -> None:
    told = failure(error)
    assert (told.exit, told.code) == (status, code)


def test_no_family_is_forgotten() -> None:
    assert set(MaskregError.__subclasses__()) <= set(EXITS)


def test_the_next_step_of_a_usage_error_is_the_help_of_that_command() -> None:
    context = click.Context(click.Command("show"), info_name="maskreg show")
    assert failure(click.UsageError("Missing argument 'REF'.", context)).hint == "maskreg show --help"
