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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing in it."""
    (tmp_path / "full").mkdir()
    return tmp_path / "full"


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


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def said(run: Run, *arguments: str | Path, what: str) -> str:
    """The message of a command that fails with 73, and holds the room needed and what is free."""
    error = run(*arguments, "--json", status=73).json["error"]
    assert error["code"] == "NO_SPACE"
    assert re.search(rf"the disk became full; {what} needs \d[\d,]* bytes, and 17 are free; ", error["message"])
    assert error["hint"]
    return str(error["message"])


def test_extract(run: Run, pair: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKREG_HOME", str(folder))
    with full(monkeypatch):
        said(run, "extract", *pair, "--name", "toy", what="the artifact")
    assert not {path for path in files(folder) if path.startswith(("artifacts", "refs", "staging"))}
    run("extract", *pair, "--name", "toy")


def test_apply(run: Run, artifact: str, pair: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("apply", "toy-opd:v1", "--source", pair[0], "-o", folder / "out")
    with full(monkeypatch):
        said(run, *arguments, what="the checkpoint")
    assert list(folder.iterdir()) == []
    run(*arguments)


def test_export(run: Run, artifact: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder / "toy.maskreg"
    with full(monkeypatch):
        message = said(run, "export", "toy-opd:v1", "-o", out, what="the file")
    assert list(folder.iterdir()) == []
    run("export", "toy-opd:v1", "-o", out)
    assert f"needs {out.stat().st_size:,} bytes" in message


def test_import(run: Run, artifact: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("export", "toy-opd:v1", "-o", tmp_path / "file")
    monkeypatch.setenv("MASKREG_HOME", str(folder))
    with full(monkeypatch):
        said(run, "import", tmp_path / "file", what="the artifact")
    assert not {path for path in files(folder) if path.startswith(("artifacts", "refs", "incoming"))}


def test_push_and_pull(
    run: Run, artifact: str, pair: tuple[Path, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither registry is new: both have written their own records before.
    run("extract", *pair, "--name", "mask", "--mask-only")
    run("remote", "add", "team", tmp_path / "team")
    run("push", "mask")
    with full(monkeypatch):
        assert "what has arrived stays" in said(run, "push", "toy-opd:v1", what="the rest of the artifact")
    assert [name["name"] for name in run("list", "--remote", "team", "--json").json["names"]] == ["mask"]
    run("push", "toy-opd:v1")
    monkeypatch.setenv("MASKREG_HOME", str(folder))
    run("pull", "mask")
    with full(monkeypatch):
        error = run("pull", "toy-opd:v1", status=73).err
    assert re.search(r"the rest of the artifact needs \d[\d,]* bytes, and 17 are free; what has arrived stays", error)
    assert [name["name"] for name in run("list", "--json").json["names"]] == ["mask"]
    run("pull", "toy-opd:v1")
    run("verify", "toy-opd:v1")
