"""A disk that becomes full in the middle of a command: both figures are said, and nothing half-written stays."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no file become durable, and say that 17 bytes are free once the work has begun."""

    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checks = iter([1 << 60])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        patch.setattr("maskreg.disk.free_bytes", lambda _: next(checks, 17))
        yield


COMMANDS = {
    "extract": (["extract", "{source}", "{target}", "--name", "toy"], "the artifact"),
    "apply": (["apply", "toy-opd:v1", "--source", "{source}", "-o", "{folder}/out"], "the checkpoint"),
    "push": (["push", "toy-opd:v1", "--remote", "full"], "the rest of the artifact"),
    "pull": (["pull", "toy-opd:v1", "--remote", "team"], "the rest of the artifact"),
}
"""Commands, and what they say needs room; ``folder`` is on the disk that becomes full."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_becomes_full(
    run: Run,
    artifact: str,
    pair: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    (folder := tmp_path / "full").mkdir()
    # The registries have written their own records before.
    for name, place in (("team", tmp_path / "team"), ("full", folder)):
        if name == "team" or command == "push":
            run("remote", "add", name, place)
            run("baseline", "toy-opd:v1", "--kind", "random-global", "--name", "mask", "--force")
            run("push", "mask", "--remote", name)
    run("push", "toy-opd:v1", "--remote", "team")
    if command in ("extract", "pull"):
        monkeypatch.setenv("MASKREG_HOME", str(folder))
        if command == "pull":
            run("pull", "mask", "--remote", "team")
    words, what = COMMANDS[command]
    places = {"source": pair[0], "target": pair[1], "folder": folder}
    line = [word.format(**places) for word in words]
    before = artifacts(folder)
    with full(monkeypatch):
        told = run(*line, "--json", status=73).err
    assert re.search(rf"{what} needs \d[\d,]* bytes, and 17 ", told)
    assert "  next: " in told
    assert artifacts(folder) == before
    run(*line)
    assert artifacts(folder) > before


def artifacts(folder: Path) -> set[str]:
    """What is visible: manifests, tags and outputs; not what a later command goes on with."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if name.startswith(("refs/", "out/"))}
