from __future__ import annotations

from pathlib import Path

import pytest

import maskreg
from maskreg.errors import ConfigError, NotFoundError, UnavailableError
from maskreg.flow.extract.extraction import extract
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.push import push
from maskreg.settings import Remote, Settings, add_remote
from tests.flow.making import edge_pair, opened, stored


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A remote with one artifact, an empty home that knows the remote, and the pair it was made from."""
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "theirs"))
    config = Settings.load().config_path
    (tmp_path / "lab").mkdir()
    add_remote(config, Remote("lab", (tmp_path / "lab").as_uri()))
    source, target = opened(tmp_path, *edge_pair())
    settings = Settings.load()
    with Registry.local(settings) as here, Registry.remote(settings.remote("lab")) as there:
        assert here.root is not None
        digest = extract(source, target, here.root).digest
        here.publish(Ref.parse("edges"), digest, card=Card())
        push(here, there, Ref.parse("edges"))
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "ours"))
    return tmp_path


def test_what_was_pulled_can_be_applied(published: Path) -> None:
    artifact = maskreg.pull("edges")
    with maskreg.open_checkpoint(published / "source") as source:
        maskreg.apply(artifact, source, published / "out")
    assert stored(published / "out") == stored(published / "target")


def test_what_is_here_is_found_without_the_remote(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError):
        monkeypatch.setenv("MASKREG_OFFLINE", "1")
        maskreg.pull("edges")
    monkeypatch.delenv("MASKREG_OFFLINE")
    digest = maskreg.pull("edges", remote="lab").digest
    monkeypatch.setenv("MASKREG_OFFLINE", "1")
    assert maskreg.pull("edges").digest == digest
    with pytest.raises(UnavailableError, match="offline is set"):
        maskreg.pull("edges", remote="lab")


def test_an_unknown_remote_is_named(published: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        maskreg.pull("edges", remote="nowhere")
