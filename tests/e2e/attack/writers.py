"""Every command that writes, what has to be there before it, and what it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.attack.people import Member
from tests.e2e.attack.stage import Stage

NOW = ("--grace", "0s")


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Attributes:
        name: for reports; the command's own name comes first.
        who: runs it.
        args: the command.
        before: brings the world into the state in which it runs.
        makes: the file or folder that it makes, if any.
        again: exit code of the same command when its work is done.
    """

    name: str
    who: Callable[[Stage], Member]
    args: tuple[str | Path, ...]
    before: Callable[[Stage], object] = lambda stage: None
    makes: Path | None = None
    again: int = 0


def _ada(stage: Stage) -> Member:
    return stage.ada


def _bob(stage: Stage) -> Member:
    return stage.bob


def _carol(stage: Stage) -> Member:
    return stage.carol


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
        Writer("extract", _ada, ("extract", target, rlvr, "--name", "new", "--reversible")),
        Writer("extract again", _ada, ("extract", source, target, "--name", "opd:again", "--reversible")),
        Writer("extract over", _ada, ("extract", source, rlvr, "--name", "opd", "--force")),
        Writer("push", _ada, ("push", "opd-null")),
        Writer("push moved", _ada, ("push", "rlvr:best"), _move_best),
        Writer("pull", _bob, ("pull", "opd-null"), lambda stage: stage.ada.must("push", "opd-null")),
        Writer("pull new", _carol, ("pull", "opd")),
        Writer("pull repair", _bob, ("pull", "opd"), _damage),
        Writer("apply", _ada, applied, makes=out, again=73),
        Writer("apply force", _ada, (*applied, "--force"), lambda stage: stage.ada.must(*reverted), out),
        Writer("apply revert", _ada, (*reverted, "--force"), lambda stage: stage.ada.must(*applied), out),
        Writer("tag", _ada, ("tag", "opd", "v9", "team/opd:v1")),
        Writer("tag moved", _ada, ("tag", "opd-null", "rlvr:best")),
        Writer("annotate", _ada, ("annotate", "opd", "--description", "a b", "--meta", "seed=7")),
        Writer("rm", _ada, ("rm", "-y", "rlvr:best"), again=66),
        Writer("restore", _ada, ("restore", "gone"), again=2),
        Writer("gc", _ada, ("gc", *NOW)),
        Writer("gc remote", _ada, ("gc", "--remote", "team", *NOW), _garbage),
        Writer("baseline", _ada, null),
        Writer("combine", _ada, ("combine", "opd", "rlvr", "--how", "and", "--name", "shared")),
        Writer("analyze", _ada, ("analyze", "rlvr", "--source", source, "--name", "rlvr-analysis")),
        Writer("compare", _ada, ("compare", "opd", "rlvr", "--source", source, "--record")),
        Writer("db rebuild", _ada, ("db", "rebuild")),
        Writer("db upgrade", _ada, ("db", "upgrade"), _no_catalog),
        Writer("list", _ada, ("list",), _no_catalog),
        Writer("remote add", _ada, ("remote", "add", "spare", work / "spare"), makes=home / "config.toml", again=78),
        Writer("config set", _ada, ("config", "set", "jobs", "3"), makes=home / "config.toml"),
    ]
