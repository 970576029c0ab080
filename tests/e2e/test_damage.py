"""Fifty damages in the local registry and on a remote, seen through the command: never silent."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.checkpoints import make_pair
from tests.damage import damaged_copy
from tests.e2e.running import Person, same_files

DAMAGES = 25


def _objects(root: Path) -> dict[str, bytes]:
    folder = root / "artifacts"
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _lay_out(root: Path, objects: dict[str, bytes]) -> None:
    shutil.rmtree(root / "artifacts")
    for key, data in objects.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(data)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[Person, Path, Path, Path]:
    folder = tmp_path_factory.mktemp("damage")
    source, target = make_pair(folder / "pair")
    author = Person(folder / "author")
    author.run("extract", source, target, "--name", "opd")
    author.run("remote", "add", "team", (folder / "remote").as_uri())
    author.run("push", "opd")
    return author, source, target, folder / "remote"


def test_in_the_local_registry(stage: tuple[Person, Path, Path, Path]) -> None:
    author, source, target, _ = stage
    objects = _objects(author.registry)
    rng = random.Random(3)
    out = author.home / "out"
    for _ in range(DAMAGES):
        damaged, touched = damaged_copy(objects, rng)
        _lay_out(author.registry, damaged)
        done = author.sh(f"maskreg apply opd --source '{source}' -o '{out}'")
        assert done.returncode in (65, 66), (touched, done.stderr)
        assert any(key.removeprefix("artifacts/") in done.stderr.decode() for key in touched) or (
            done.returncode == 66 and not any(key in damaged for key in touched)
        ), (touched, done.stderr)
        assert not out.exists()
    _lay_out(author.registry, objects)
    author.run("apply", "opd", "--source", source, "-o", out)
    assert same_files(out, target)


def test_on_a_remote(stage: tuple[Person, Path, Path, Path], tmp_path: Path) -> None:
    _, source, target, remote = stage
    objects = _objects(remote)
    rng = random.Random(4)
    for number in range(DAMAGES):
        damaged, touched = damaged_copy(objects, rng)
        stray = any(key not in objects for key in touched)
        _lay_out(remote, damaged)
        colleague = Person(tmp_path / f"colleague-{number}")
        colleague.run("remote", "add", "team", remote.as_uri())
        done = colleague.sh(f"maskreg pull opd --only delta | maskreg apply --source '{source}' -o out")
        used = any("/mask/" not in key for key in touched)
        if stray or not used:
            # What pull does not fetch cannot hurt; the copy here is whole.
            assert done.returncode == 0, (touched, done.stderr)
            assert same_files(colleague.home / "out", target)
            continue
        assert done.returncode in (65, 66), (touched, done.stderr)
        assert not (colleague.home / "out").exists()
    _lay_out(remote, objects)
