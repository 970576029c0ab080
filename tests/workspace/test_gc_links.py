"""Garbage collection and chains: what a named link stands on stays, and goes when nothing names the chain."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import maskreg
from maskreg.digest import Digest
from maskreg.registry.collect import collect
from tests.registry.conftest import age
from tests.workspace.conftest import Run, step

NOW = timedelta(0)


@pytest.fixture
def links(run: Run) -> list[Digest]:
    """Three links that were published."""
    run.publish(1, 2, 3)
    return [link.digest for link in run.links()]


@pytest.fixture
def stray(run: Run) -> Digest:
    """An artifact that no name points to."""
    return maskreg.extract(run.steps[0], run.steps[5], workspace=run.ada).digest


def present(registry: maskreg.Registry) -> set[str]:
    return {f"sha256:{info.key.split('/')[2]}" for info in registry.store.list("artifacts/sha256/")}


def collected(registry: maskreg.Registry, grace: timedelta = NOW) -> set[Digest]:
    return {item.digest for item in collect(registry, grace).collected}


def test_what_a_named_link_stands_on_stays(run: Run, links: list[Digest], stray: Digest) -> None:
    for registry, gone in ((run.ada.local, {stray}), (run.ada.remote("team"), set())):
        assert collected(registry) == gone
        assert present(registry) == {*links}
    assert run.publish(4).moved


def test_old_links_go_once_the_tag_is_at_what_was_squashed(run: Run, links: list[Digest], tmp_path: Path) -> None:
    squashed = maskreg.squash("toy/run", "toy/run", force=True, workspace=run.ada).digest
    maskreg.push("toy/run", workspace=run.ada)
    remote = run.ada.remote("team")
    # A reader that stands at a link still finds its way, for as long as the links can be restored.
    assert collected(remote, timedelta(days=7)) == set()
    for digest in links:
        age(remote, 30, digest)
    assert collected(remote, timedelta(days=7)) == set()
    with run.follower(tmp_path / "late", run.steps[1]) as late:
        assert step(late).links == 2
    assert collected(remote) == {*links}
    assert present(remote) == {squashed}
    # The run goes on, on top of it.
    assert run.publish(4).manifest.parents == (squashed,)
    with run.follower(tmp_path / "new") as new:
        assert step(new).links == 2


def test_a_damaged_manifest_keeps_what_it_mentions(run: Run, links: list[Digest], stray: Digest) -> None:
    manifest = run.ada.root / "artifacts" / "sha256" / links[-1].hex / "manifest.json"
    data = manifest.read_bytes()
    manifest.write_bytes(data[:-1] + b" ")
    assert collected(run.ada.local) == {stray}
    assert present(run.ada.local) == {*links}


def test_a_link_that_is_named_during_a_collection_keeps_what_it_stands_on(run: Run, links: list[Digest]) -> None:
    maskreg.remove("toy/run", workspace=run.ada)

    def name_again(_: object) -> None:
        maskreg.tag(links[-1], "toy/again", workspace=run.ada)

    garbage = collect(run.ada.local, NOW, announce=name_again)
    assert garbage.collected == ()
    assert set(garbage.spared) == {*links}
