"""The tables from an error to its exit code, and to what to type next."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

import click
import pytest
from maskreg_cli.exits import BUG, EXITS, failure
from maskreg_cli.main import cli
from maskreg_cli.output import Output

from maskreg import errors
from maskreg.digest import Digest
from maskreg.errors import MaskregError
from maskreg.ref import Ref
from maskreg.registry.collect import Garbage
from tests.cli.conftest import Run


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
        (FileNotFoundError(errno.ENOENT, "a room forgot to say this in its own words", "/x"), BUG, "BUG"),
        (ZeroDivisionError("x"), BUG, "BUG"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_every_family_has_its_exit_code(error: BaseException, status: int, code: str) -> None:
    told = failure(error)
    assert (told.exit, told.code) == (status, code)


def test_a_traceback_shows_the_hint() -> None:
    error = errors.UsageError("x", hint="first")
    error.hint = "y"
    assert traceback.format_exception_only(error)[1:] == ["hint: y\n"]


def test_a_current_directory_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = failure(FileNotFoundError(errno.ENOENT, "no such file", "here"))
    assert (told.exit, told.code) == (66, "NOT_FOUND")


def test_a_signal_while_a_class_is_made_is_a_signal() -> None:
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = SystemExit(143)
    assert failure(error).code == "TERMINATED"


def test_no_family_is_forgotten() -> None:
    assert set(MaskregError.__subclasses__()) <= set(EXITS)


REF = Ref.parse("team/x:v1")
STEPS: list[tuple[MaskregError, str]] = [
    (errors.NotFoundError("x", removed=REF), "maskreg restore team/x:v1"),
    (errors.NotFoundError("x", removed=REF, remote="lab"), "maskreg restore team/x:v1 --remote lab"),
    (errors.NotFoundError("x", similar="x", history=REF), "maskreg list x"),
    (errors.NotFoundError("x", artifact="sha256:0", ref=REF, remote="lab"), "maskreg log team/x:v1 --remote lab"),
    (errors.NotFoundError("x", empty=True), "maskreg extract SOURCE TARGET --name NAME"),
    (errors.NotFoundError("x", remote=""), "maskreg list"),
    (errors.PartAbsentError("x", ref=REF, not_pulled="mask"), "maskreg pull team/x:v1 --only mask"),
    (errors.PartAbsentError("x", artifact="sha256:0", ref=REF, absent="mask"), "maskreg squash team/x:v1 --name NAME"),
    (
        errors.PartAbsentError("x", artifact="sha256:0", ref=REF, absent="reverse"),
        "maskreg extract SOURCE TARGET --name NAME --reversible",
    ),
    (errors.PartAbsentError("x", removed=REF), "maskreg restore team/x:v1"),  # rows of base classes follow
    (
        errors.RolledBackError("k", "x", remote="lab"),
        "maskreg remote check lab --allow-rollback takes what is there now",
    ),
    (errors.UnauthenticatedError("x", url="https://lab"), "maskreg login https://lab --token-stdin"),
    (errors.UnauthenticatedError("x"), "maskreg login URL --token-stdin"),
    (errors.DataError("x", indexed=True), "maskreg db rebuild"),
    (errors.ConfigError("x", new_url="s3://b", new_remote="lab"), "maskreg remote add lab s3://b"),
    (errors.ConfigError("x", new_url="s3://b", setting="remotes.lab.url"), "maskreg config set remotes.lab.url s3://b"),
    (errors.ConfigError("x", known_remotes=()), "maskreg remote list"),
    (errors.UsageError("x", options={"force": True, "jobs": 2}), "add --force --jobs 2"),
    (errors.UsageError("x", hint="look", unnamed=REF, name="y"), "look: maskreg tag team/x:v1 y"),
    (errors.MaskregError("x", unnamed=REF), ""),  # a row of another class
    (errors.UsageError("x", names=REF, hint="look"), "look: maskreg list team/x:v1"),
]


@pytest.mark.parametrize(("error", "step"), STEPS, ids=[f"{type(e).__name__} {n}" for n, (e, _) in enumerate(STEPS)])
def test_a_fact_decides_what_to_type(error: MaskregError, step: str) -> None:
    assert failure(error).hint == step


@pytest.mark.parametrize(
    ("typed", "options", "again"),
    [
        (["list", "x y"], {"limit": 3}, "maskreg list 'x y' --limit 3"),
        (["list", "--limit", "9", "x"], {"limit": 3}, "maskreg list x --limit 3"),
        (["list", "--limit=9"], {"limit": 3}, "maskreg list --limit 3"),
        (["rm", "-y", "x"], {"yes": True}, "maskreg rm x --yes"),
        (
            ["merge", "--set", "k=9", "x", "--method", "m", "--set", "r=1"],
            {"settings": {"k": 2}},
            "maskreg merge x --method m --set k=2 --set r=1",
        ),
        (["extract", "--name", "c", "--", "a", "b"], {"rule": "exact"}, "maskreg extract --name c --rule exact -- a b"),
        (["rm", "x"], {"allow_rollback": True}, ""),  # not an option of this command
    ],
)
def test_options_are_added_to_what_was_typed(typed: list[str], options: dict[str, object], again: str) -> None:
    with click.Context(cli, info_name="maskreg", obj=Output()) as parent:
        _, command, rest = cli.resolve_command(parent, list(typed))
        assert command is not None
        context = command.make_context(typed[0], rest, parent=parent)
    assert failure(errors.UsageError("x", options=options), context).hint == again


def test_a_run_that_was_overtaken_is_no_success(run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Garbage((), (Digest(artifact),), 0, 0, False, overtaken=(Digest(artifact),))
    monkeypatch.setattr("maskreg.workspace.verbs.gc.collect", lambda *_, **__: report)
    ended = run("gc", status=75)
    assert ended.err.endswith("next: maskreg verify --all\n")
    assert run("gc", "--json", status=75).json["overtaken"] == [artifact]
