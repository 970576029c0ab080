"""Garbage collection and chains: what a named link stands on stays, and goes when nothing names the chain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import maskreg
from maskreg.digest import Digest
from maskreg.registry.collect import collect
from tests.registry.conftest import age
from tests.workspace.conftest import Lab
from tests.workspace.test_publish import chain, states

RUN = maskreg.Ref("toy", "run")
NOW = timedelta(0)


@pytest.fixture
def steps(lab: Lab) -> list[Path]:
    return states(lab, 5)


@pytest.fixture
def run(ada: maskreg.Workspace, steps: list[Path]) -> Iterator[maskreg.Publisher]:
    with maskreg.Publisher(RUN, source=steps[0], remote="team", workspace=ada) as publisher:
        for step in steps[1:4]:
            publisher.publish(step)
        yield publisher


def present(registry: maskreg.Registry) -> set[str]:
    return {info.key.split("/")[2] for info in registry.store.list("artifacts/sha256/")}


def hexes(*digests: Digest | None) -> set[str]:
    return {digest.hex for digest in digests if digest is not None}


def test_what_a_named_link_stands_on_stays(run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]) -> None:
    stray = maskreg.extract(steps[0], steps[5], workspace=ada).digest
    for registry, gone in ((ada.local, (stray,)), (ada.remote("team"), ())):
        garbage = collect(registry, NOW)
        assert {item.digest for item in garbage.collected} == set(gone)
        assert present(registry) == hexes(*(link.digest for link in chain(ada, "toy/run")))
    assert run.publish(steps[4]).moved


def test_old_links_go_once_the_tag_is_at_what_was_squashed(
    run: maskreg.Publisher, ada: maskreg.Workspace, lab: Lab, steps: list[Path]
) -> None:
    links = [link.digest for link in chain(ada, "toy/run")]
    squashed = maskreg.squash(RUN, RUN, force=True, workspace=ada).digest
    maskreg.push(RUN, workspace=ada)
    remote = ada.remote("team")
    # A reader that stands at a link still finds its way, for as long as the links may be restored.
    assert collect(remote, timedelta(days=7)).collected == ()
    for digest in links:
        age(remote, 30, digest)
    assert collect(remote, timedelta(days=7)).collected == ()
    with maskreg.follow_folder(RUN, lab.folder / "late", steps[1], every_s=0, workspace=ada) as late:
        followed = late.step()
    assert followed is not None
    assert followed.links == 2
    assert {item.digest for item in collect(remote, NOW).collected} == set(links)
    assert present(remote) == hexes(squashed)
    # The run goes on, on top of it.
    link = run.publish(steps[4])
    assert link.manifest.parents == (squashed,)
    with maskreg.follow_folder(RUN, lab.folder / "new", steps[0], every_s=0, workspace=ada) as new:
        followed = new.step()
    assert followed is not None
    assert followed.links == 2


def test_a_damaged_manifest_keeps_what_it_mentions(
    run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]
) -> None:
    stray = maskreg.extract(steps[0], steps[5], workspace=ada).digest
    links = [link.digest for link in chain(ada, "toy/run")]
    manifest = ada.root / "artifacts" / "sha256" / links[-1].hex / "manifest.json"
    data = manifest.read_bytes()
    manifest.write_bytes(data[:-1] + b" ")
    assert {item.digest for item in collect(ada.local, NOW).collected} == {stray}
    manifest.write_bytes(data)
    assert present(ada.local) == hexes(*links)


def test_a_link_that_is_named_during_a_collection_keeps_what_it_stands_on(
    run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]
) -> None:
    links = [link.digest for link in chain(ada, "toy/run")]
    ada.local.append(RUN, None, card=maskreg.Card(), after=ada.local.head(RUN), action="remove")

    def name_again(_: object) -> None:
        maskreg.tag(links[-1], "toy/again", workspace=ada)

    garbage = collect(ada.local, NOW, announce=name_again)
    assert garbage.collected == ()
    assert set(garbage.spared) == set(links)
