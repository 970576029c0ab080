"""Lineage: what artifacts were derived from, as far as it is there."""

from __future__ import annotations

import pytest

import maskreg
from maskreg.artifact.layout import artifact_prefix
from maskreg.workspace.lineage import lineage
from maskreg.workspace.storing import Stored
from tests.workspace.conftest import Lab


@pytest.fixture
def chain(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> list[Stored]:
    """A mask, a baseline of it, and what the two share."""
    random = maskreg.baseline(toy, kind="random-per-tensor", seed=1, name="random", workspace=ada)
    both = maskreg.combine([toy, random], "both", how="and", workspace=ada)
    return [toy, random, both]


def test_ancestors_come_breadth_first_and_once(ada: maskreg.Workspace, chain: list[Stored]) -> None:
    toy, random, both = (stored.digest for stored in chain)
    result = lineage("both", workspace=ada)
    assert [(ancestor.digest, ancestor.depth) for ancestor in result.ancestors] == [(both, 0), (toy, 1), (random, 1)]
    assert set(result.links) == {(both, toy), (both, random), (random, toy)}
    assert result.left_out == ()


def test_what_is_cut_is_said(ada: maskreg.Workspace, chain: list[Stored]) -> None:
    result = lineage("both", limit=2, workspace=ada)
    assert len(result.ancestors) == 2
    assert result.left_out == (chain[1].digest,)


def test_an_ancestor_that_is_gone_has_its_digest_alone(ada: maskreg.Workspace, chain: list[Stored]) -> None:
    store = ada.local.store
    store.delete([info.key for info in store.list(artifact_prefix(chain[0].digest))])
    result = lineage("both", workspace=ada)
    assert {ancestor.digest for ancestor in result.ancestors if ancestor.manifest is None} == {chain[0].digest}
