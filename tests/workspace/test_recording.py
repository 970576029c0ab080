"""Recording overlaps: what is kept, of which masks, and what is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.catalog import Query
from maskreg.catalog.query import OVERLAP, RLVR_OVERLAP, SEED_OVERLAP, Measurement
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import MaskregError
from maskreg.flow.extract.extraction import extract
from maskreg.ref import Card, Ref
from maskreg.registry import Registry, Resolved
from maskreg.settings import Settings
from maskreg.workspace.verbs.recording import record, reference_of
from maskreg.workspace.workspace import Named
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.flow.making import compared

SOURCE: dict[str, Tensor] = {"model.layers.0.mlp.up_proj.weight": bf16((64, 64), 1), "b.weight": bf16((64, 64), 2)}


class Lab:
    """A registry with masks of one source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.here = Registry.local(Settings(home=folder / "home", config_path=folder / "config.toml"))
        self.sources = {0: open_checkpoint(make_checkpoint(folder / "source", SOURCE))}

    def mask(self, name: str, fraction: float, card: Card | None = None, *, source: int = 0) -> Resolved:
        """A mask under a name."""
        if source not in self.sources:
            other = {key: bf16((64, 64), 7 * source + place) for place, key in enumerate(SOURCE)}
            self.sources[source] = open_checkpoint(make_checkpoint(self.folder / f"source{source}", other))
        opened = self.sources[source]
        tensors = {key: ("BF16", opened.read(key, 0, 4096).reshape(64, 64)) for key in SOURCE}
        target = {key: moved(tensor, fraction, seed=sum(name.encode())) for key, tensor in tensors.items()}
        made = open_checkpoint(make_checkpoint(self.folder / name.replace(":", "-"), target))
        assert self.here.root is not None
        digest = extract(opened, made, self.here.root, mask_only=True).digest
        ref = Ref.parse(name)
        self.here.publish(ref, digest, card=card or Card())
        return self.here.resolve(ref)

    def record(self, *masks: Resolved) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
        """Compare and record."""
        named = [Named(mask.ref, self.here.artifact(mask.digest), mask.card) for mask in masks]
        comparison = compared([mask.artifact for mask in named], allow_different=True)
        return record(self.here, comparison, named)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_the_lift_is_kept_on_the_first_mask_with_all_that_it_depends_on(lab: Lab) -> None:
    one, other = lab.mask("one", 0.4), lab.mask("other", 0.2)
    (kept,), notes = lab.record(one, other)
    assert notes == ()
    assert (kept.digest, kept.metric, kept.against) == (one.digest, OVERLAP, other.digest)
    assert kept.value == pytest.approx(1, abs=0.1)
    assert kept.detail["digests"] == [one.digest, other.digest]
    assert kept.detail["refs"] == ["one", "other"]
    assert kept.detail["rules"] == ["exact", "exact"]
    assert kept.detail["scope"] == {"tensors": 2, "coordinates": 8192}
    (found,) = lab.here.index.must_open().measurements(one.digest)
    assert (found.metric, found.value, dict(found.detail)) == (kept.metric, kept.value, dict(kept.detail))
    assert lab.here.index.must_open().measurements(other.digest) == []
    assert RLVR_OVERLAP not in lab.here.index.overlaps(one.digest)


def test_the_reference_of_the_source_is_recognized(lab: Lab) -> None:
    one = lab.mask("one", 0.4)
    lab.mask("foreign:rlvr-reference", 0.3, source=1)
    reference = lab.mask("rl:rlvr-reference", 0.2)
    assert [kept.metric for kept in lab.record(one, reference)[0]] == [OVERLAP, RLVR_OVERLAP]
    found = lab.here.index.overlaps(one.digest)[RLVR_OVERLAP]
    assert (found.against, found.detail["reference"]) == (reference.digest, "rl:rlvr-reference")
    (indexed,) = lab.here.search(Query(digest=one.digest)).results
    assert (indexed.rlvr_overlap, indexed.rlvr_against) == (found.value, reference.digest)
    # Neither the reference itself, nor the other way round, nor another source's.
    for pair in ((reference, reference), (reference, one)):
        assert RLVR_OVERLAP not in [kept.metric for kept in lab.record(*pair)[0]]


def test_of_several_references_the_latest_counts(lab: Lab) -> None:
    one, first = lab.mask("one", 0.4), lab.mask("rl:rlvr-reference", 0.2)
    second = lab.mask("newer:rlvr-reference", 0.3)
    found = reference_of(lab.here, lab.here.artifact(one.digest).manifest.source.root)
    assert found is not None
    assert found.digest == second.digest
    assert RLVR_OVERLAP not in [kept.metric for kept in lab.record(one, first)[0]]


def card(seed: str, method: str = "opd", family: str = "toy") -> Card:
    return Card(family, method, meta={"seed": seed} if seed else {})


def test_two_seeds_of_one_recipe_are_the_ceiling_of_both(lab: Lab) -> None:
    one, other = lab.mask("one", 0.4, card("1")), lab.mask("other", 0.3, card("2"))
    assert [kept.metric for kept in lab.record(one, other)[0]] == [OVERLAP, SEED_OVERLAP, SEED_OVERLAP]
    for mask, against in ((one, other), (other, one)):
        found = lab.here.index.overlaps(mask.digest)[SEED_OVERLAP]
        assert (found.against, found.detail["seeds"]) == (against.digest, ["1", "2"])


OTHERS = [(card("1"), 0), (card(""), 0), (card("2", method="rlvr"), 0), (card("2", family="other"), 0), (card("2"), 1)]


@pytest.mark.parametrize(("other", "source"), OTHERS, ids=str)
def test_other_recipes_and_sources_are_no_ceiling(lab: Lab, other: Card, source: int) -> None:
    made, _ = lab.record(lab.mask("one", 0.4, card("1")), lab.mask("other", 0.3, other, source=source))
    assert [kept.metric for kept in made] == [OVERLAP]


def test_what_is_undefined_is_not_recorded(lab: Lab) -> None:
    made, notes = lab.record(lab.mask("still", 0.0), lab.mask("other", 0.3))
    assert made == ()
    assert len(notes) == 1 and "still and other" in notes[0]


def test_nothing_is_recorded_without_a_usable_catalog(lab: Lab) -> None:
    masks = lab.mask("one", 0.4), lab.mask("other", 0.3)
    lab.here.close()
    assert lab.here.root is not None
    catalog = lab.here.root / "catalog.db"
    catalog.unlink()
    catalog.mkdir()
    with pytest.raises(MaskregError):
        lab.record(*masks)
