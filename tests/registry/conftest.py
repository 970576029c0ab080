"""A local registry with one small artifact in it, and an empty remote."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskreg.artifact.layout import artifact_prefix
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from maskreg.store import MemoryStore
from tests.artifact.making import pair, write

REF = Ref.parse("team/qwen3-8b-opd")
CARD = Card(family="qwen3-8b", method="opd", licence="apache-2.0", meta={"run": "7"})


def new_local(home: Path, *, by: str = "ada@here") -> Registry:
    registry = Registry.local(Settings(home=home, config_path=home / "config.toml"))
    registry.by = by
    return registry


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
    assert local.root is not None
    shutil.copytree(made[0] / artifact_prefix(made[1]), local.root / artifact_prefix(made[1]))
    local.publish(REF, made[1], card=CARD)
    return made[1]


@pytest.fixture
def remote() -> Registry:
    registry = Registry(MemoryStore(), name="lab", by="ada@here")
    registry.patience_s = 0
    return registry
