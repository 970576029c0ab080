"""Every command that writes, what has to be there before it, and what it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.attack.stage import Stage

NOW = ("--grace", "0s")


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Attributes:
        name: for reports; the command's own name comes first.
        who: runs it: ``ada``, ``bob`` or ``carol``.
        args: the command.
        before: brings the world into the state in which it runs.
        makes: the file or folder that it makes, if any.
        again: exit code of the same command when its work is done.
    """

    name: str
    who: str
    args: tuple[str | Path, ...]
    before: Callable[[Stage], object] = lambda stage: None
    makes: Path | None = None
    again: int = 0


def _move_best(stage: Stage) -> None:
    stage.ada.must("tag", "opd-null", "rlvr:best")


def _garbage(stage: Stage) -> None:
    # Bob's copy of what ada's remote no longer names would keep nothing alive: it is in his registry only.
    stage.ada.must("extract", stage.target, stage.source, "--name", "brief")
    stage.ada.must("push", "brief")
    stage.ada.must("tag", "opd", "brief:latest")
    stage.ada.must("push", "brief")


def _no_catalog(stage: Stage) -> None:
    for path in stage.ada.registry.glob("catalog.db*"):
        path.unlink()


def _damage(stage: Stage) -> None:
    path = stage.artifact(stage.bob, "opd") / "tensors.json"
    path.write_bytes(b"{}")


def writers(stage: Stage) -> list[Writer]:
    """All of them."""
    source, target, rlvr = stage.source, stage.target, stage.folder / "rlvr"
    work, home = stage.folder / "work", stage.ada.home
    out = work / "out"
    applied = ("apply", "opd", "--source", source, "-o", out)
    reverted = ("apply", "opd", "--revert", "--source", target, "-o", out)
    null = ("baseline", "opd", "--kind", "exponent-matched", "--source", source, "--name", "matched")
    return [
        Writer("extract", "ada", ("extract", target, rlvr, "--name", "new", "--reversible")),
        Writer("extract again", "ada", ("extract", source, target, "--name", "opd:again", "--reversible")),
        Writer("extract over", "ada", ("extract", source, rlvr, "--name", "opd", "--force")),
        Writer("push", "ada", ("push", "opd-null")),
        Writer("push moved", "ada", ("push", "rlvr:best"), _move_best),
        Writer("pull", "bob", ("pull", "opd-null"), lambda stage: stage.ada.must("push", "opd-null")),
        Writer("pull new", "carol", ("pull", "opd")),
        Writer("pull repair", "bob", ("pull", "opd"), _damage),
        Writer("apply", "ada", applied, makes=out, again=73),
        Writer("apply force", "ada", (*applied, "--force"), lambda stage: stage.ada.must(*reverted), out),
        Writer("apply revert", "ada", (*reverted, "--force"), lambda stage: stage.ada.must(*applied), out),
        Writer("tag", "ada", ("tag", "opd", "v9", "team/opd:v1")),
        Writer("tag moved", "ada", ("tag", "opd-null", "rlvr:best")),
        Writer("annotate", "ada", ("annotate", "opd", "--description", "a b", "--meta", "seed=7")),
        Writer("rm", "ada", ("rm", "-y", "rlvr:best"), again=66),
        Writer("restore", "ada", ("restore", "gone"), again=2),
        Writer("gc", "ada", ("gc", *NOW)),
        Writer("gc remote", "ada", ("gc", "--remote", "team", *NOW), _garbage),
        Writer("baseline", "ada", null),
        Writer("combine", "ada", ("combine", "opd", "rlvr", "--how", "and", "--name", "shared")),
        Writer("analyze", "ada", ("analyze", "rlvr", "--source", source, "--name", "rlvr-analysis")),
        Writer("compare", "ada", ("compare", "opd", "rlvr", "--source", source, "--record")),
        Writer("db rebuild", "ada", ("db", "rebuild")),
        Writer("db upgrade", "ada", ("db", "upgrade"), _no_catalog),
        Writer("list", "ada", ("list",), _no_catalog),
        Writer("remote add", "ada", ("remote", "add", "spare", work / "spare"), makes=home / "config.toml", again=78),
        Writer("config set", "ada", ("config", "set", "jobs", "3"), makes=home / "config.toml"),
    ]
