"""A local registry with one small artifact in it, and an empty remote; what is in them, and what was heard."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskreg.artifact.layout import artifact_prefix
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.push import push
from maskreg.settings import Settings
from maskreg.store import FileStore, Store
from tests.artifact.making import pair, write
from tests.store.memory import MemoryStore

REF = Ref.parse("team/qwen3-8b-opd")
CARD = Card(family="qwen3-8b", method="opd", license="apache-2.0", meta={"run": "7"})


class Heard:
    """Adds up what it is told."""

    def __init__(self) -> None:
        self.promised = 0
        self.done = 0
        self.labels: list[str] = []
        self._lock = threading.Lock()

    def start(self, label: str, total_bytes: int) -> None:
        self.labels.append(label)
        self.promised += total_bytes

    def advance(self, n_bytes: int) -> None:
        with self._lock:
            self.done += n_bytes


def root_of(registry: Registry) -> Path:
    assert isinstance(registry.store, FileStore)
    return registry.store.root


def copy_artifact(digest: Digest, source: Path, target: Registry) -> None:
    shutil.copytree(source / artifact_prefix(digest), root_of(target) / artifact_prefix(digest))


def over(store: Store) -> Registry:
    return Registry(store, name="lab", by="ada@here")


def objects(registry: Registry, digest: Digest) -> dict[str, bytes]:
    prefix = artifact_prefix(digest)
    return {
        i.key.removeprefix(prefix): registry.store.get(i.key, max_bytes=1 << 30) for i in registry.store.list(prefix)
    }


def second(remote: Registry) -> Registry:
    """The same remote as another user sees it."""
    return Registry(remote.store, name=remote.name, by="bob@there")


def new_local(home: Path, *, by: str = "ada@here") -> Registry:
    registry = Registry.local(Settings(home=home, config_path=home / "config.toml"))
    registry.by = by
    return registry


def age(registry: Registry, days: float, digest: Digest) -> None:
    then = time.time() - days * 86_400
    for path in (root_of(registry) / artifact_prefix(digest)).rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digest]:
    """A folder with one artifact of all parts, made once; tests copy out of it."""
    root = tmp_path_factory.mktemp("made")
    return root, write(root, pair(), files={"config.json": b"{}"})


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Registry]:
    with new_local(tmp_path / "empty", by="bob@there") as registry:
        yield registry


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Registry]:
    with new_local(tmp_path / "home") as registry:
        yield registry


@pytest.fixture
def digest(local: Registry, made: tuple[Path, Digest]) -> Digest:
    """The artifact that ``REF`` names in the local registry."""
    copy_artifact(made[1], made[0], local)
    local.publish(REF, made[1], card=CARD)
    return made[1]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a garbage collection, or for a listing."""
    monkeypatch.setattr("maskreg.registry.settle.PATIENCE_S", 0)
    monkeypatch.setattr("maskreg.store.chain.PAUSE_S", 0)


@pytest.fixture
def remote() -> Registry:
    return over(MemoryStore())


@pytest.fixture
def pushed(local: Registry, remote: Registry, digest: Digest) -> Digest:
    """The artifact that ``REF`` names on the remote too."""
    push(local, remote, REF)
    return digest


@pytest.fixture
def other(local: Registry) -> Digest:
    """Another artifact in the local registry, without a name."""
    return write(root_of(local), pair(1), parts=("mask", "delta"))
