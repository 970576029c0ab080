"""Publishing again and again: links that stand on one another, and squashing them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.errors import BrokenChainError, ConflictError, MissingLinkError, UsageError
from maskreg.flow.extract.extraction import Provenance, extract
from tests.checkpoints import bf16, make_checkpoint, moved, widened
from tests.workspace.conftest import SOURCE, Lab, Run


def test_every_link_stands_on_the_one_before(run: Run) -> None:
    run.publish(1, 2, 3)
    first, second, third = run.links()
    extracted = maskreg.extract(run.steps[0], run.steps[1], workspace=run.ada).manifest
    assert (first.manifest.target, first.manifest.totals) == (extracted.target, extracted.totals)
    assert first.manifest.parts == {"delta": extracted.parts["delta"]}
    assert (first.manifest.parents, first.manifest.recipe) == ((), None)
    assert (second.manifest.parents, third.manifest.parents) == ((first.digest,), (second.digest,))
    assert third.manifest.recipe == {"kind": "link"}
    for below, link in ((first, second), (second, third)):
        assert link.manifest.source.root == below.manifest.target.root
    assert run.ada.find("toy/run").card.meta == {"step": "3"}
    remote = run.ada.remote("team")
    digests = [entry.digest for entry in remote.history(run.publisher.ref)]
    assert digests == [first.digest, second.digest, third.digest]
    assert all(remote.artifact(digest).present() == {"delta"} for digest in digests if digest)


def test_a_publisher_that_starts_again_goes_on_where_the_links_end(run: Run) -> None:
    run.publish(1, 2, 3)
    # By a source that links lead away from, and by one that is found.
    again = maskreg.publish(run.steps[4], "toy/run", source=run.steps[2], workspace=run.ada)
    assert again is not None
    assert again.manifest.parents == (run.links()[2].digest,)
    unmoved = maskreg.publish(run.steps[4], "toy/run", workspace=run.ada)
    assert unmoved is not None
    assert (again.moved, set(again.event.seconds)) == (True, {"find", "code"})
    assert unmoved.moved is False
    assert len(run.links()) == 4
    # A remote gets the link that it lacks too.
    run.publish(5)
    log = run.ada.remote("team").history(run.publisher.ref)
    assert [entry.digest for entry in log] == [link.digest for link in run.links()]


def test_a_run_goes_on_elsewhere(run: Run) -> None:
    run.publish(1, 2)
    link = maskreg.publish(run.steps[3], "toy/run", source=run.steps[0], remote="team", workspace=run.bob)
    assert link is not None
    assert link.manifest.parents == (run.links()[1].digest,)
    assert run.ada.remote("team").resolve(run.publisher.ref).digest == link.digest


def test_a_run_comes_back_to_a_machine_that_it_left(run: Run) -> None:
    run.publish(1)
    here = run.steps[0]
    theirs = maskreg.publish(run.steps[2], "toy/run", source=here, remote="team", workspace=run.bob)
    assert theirs is not None
    back = maskreg.publish(run.steps[3], "toy/run", source=here, remote="team", workspace=run.ada)
    assert back is not None
    assert back.manifest.parents == (theirs.digest,)
    assert run.ada.remote("team").resolve(run.publisher.ref).digest == back.digest


def test_two_publishers_that_part_are_told_until_one_gives_way(run: Run) -> None:
    run.publish(1)
    maskreg.publish(run.steps[2], "toy/run", source=run.steps[0], remote="team", workspace=run.bob)
    for step in (3, 4):
        with pytest.raises(ConflictError):
            run.publish(step)
    maskreg.remove("toy/run", workspace=run.ada)
    assert run.publish(4).manifest.parents == (run.bob.find("toy/run").digest,)
    maskreg.remove("toy/run", workspace=run.ada)
    with maskreg.Publisher("toy/run", source=run.steps[0], remote="team", workspace=run.ada) as again:
        link = again.publish(run.steps[5])
    assert link is not None
    fourth, fifth = run.ada.remote("team").history(run.publisher.ref)[-2:]
    assert (link.digest, link.manifest.parents) == (fifth.digest, (fourth.digest,))


def test_what_a_process_stored_and_did_not_push_is_pushed_by_the_next(run: Run) -> None:
    run.publish(1)
    link = maskreg.publish(run.steps[2], "toy/run", source=run.steps[0], workspace=run.ada)
    assert link is not None
    again = maskreg.publish(run.steps[2], "toy/run", source=run.steps[0], remote="team", workspace=run.ada)
    assert again is not None
    assert not again.moved
    assert again.event.seconds.keys() == {"find", "push"}
    assert run.ada.remote("team").resolve(run.publisher.ref).digest == link.digest


def test_squashing_gives_what_extracting_the_ends_gives(run: Run) -> None:
    run.publish(1, 2, 3)
    whole = maskreg.squash("toy/run", "toy/run:whole", workspace=run.ada)
    assert whole.digest == maskreg.extract(run.steps[0], run.steps[3], workspace=run.ada).digest
    assert whole.card.family == "toy"
    part = maskreg.squash("toy/run", since=run.links()[0], source=run.steps[1], workspace=run.ada)
    assert part.digest == maskreg.extract(run.steps[1], run.steps[3], workspace=run.ada).digest
    with pytest.raises(UsageError, match=r"toy/run$"):
        maskreg.squash("toy/run", since="toy/run", workspace=run.ada)
    with pytest.raises(UsageError, match=f"toy/run .*{part.digest.short}"):
        maskreg.squash("toy/run", since=part, workspace=run.ada)


def test_a_gap_is_refused_with_both_names(run: Run) -> None:
    run.publish(1, 2, 3)
    first, second, _ = run.links()
    wrong = maskreg.extract(run.steps[1], run.steps[4], workspace=run.ada)
    with run.ada.checkpoint(run.steps[2]) as before, run.ada.checkpoint(run.steps[3]) as after:
        broken = extract(before, after, run.ada.root, provenance=Provenance([wrong.digest], {"kind": "link"}))
    with pytest.raises(BrokenChainError, match=f"{broken.digest.short} .*{wrong.digest.short}"):
        maskreg.squash(broken.digest, workspace=run.ada)
    (run.ada.root / "artifacts" / "sha256" / first.digest.hex / "manifest.json").unlink()
    with pytest.raises(MissingLinkError, match=f"{second.digest.short} .*{first.digest.short}") as raised:
        maskreg.squash("toy/run", workspace=run.ada)
    assert next_step(raised.value) == f"maskreg pull @{first.digest}"


def test_a_circle_is_not_published(run: Run) -> None:
    run.publish(1, 2, 3)
    second, third = run.links()[1:]
    with pytest.raises(BrokenChainError, match=second.digest.short) as caught:
        run.publish(2)
    assert "maskreg tag" in next_step(caught.value)
    with pytest.raises(BrokenChainError, check=lambda error: str(error.facts["circle"]) == "toy/run"):
        run.publish(0)
    # Nothing was published, and the run goes on.
    assert run.publish(4).manifest.parents == (third.digest,)


def test_a_run_may_begin_with_its_source_as_it_is(run: Run) -> None:
    first = run.publish(0)
    assert first.manifest.source.root == first.manifest.target.root
    assert not run.publish(0).moved
    with run.follower() as follower:
        follower.step()
        assert run.is_at(0)
        assert run.publish(1).manifest.parents == (first.digest,)
        run.publish(2)
        follower.step()
    assert run.is_at(2)
    whole = maskreg.squash("toy/run", workspace=run.ada)
    assert whole.digest == maskreg.extract(run.steps[0], run.steps[2], workspace=run.ada).digest
    with pytest.raises(BrokenChainError, check=lambda error: str(error.facts["circle"]) == "toy/run"):
        run.publish(0)


def test_a_tag_that_moved_back_is_where_the_next_link_stands(run: Run) -> None:
    run.publish(1, 2, 3)
    second = run.links()[1]
    maskreg.tag(f"toy/run@{second.digest}", "latest", workspace=run.ada)
    link = run.publish(4)
    assert link.manifest.parents == (second.digest,)
    assert link.manifest.source.root == second.manifest.target.root


def test_a_tag_that_nothing_can_stand_on_does_no_lasting_harm(run: Run) -> None:
    with maskreg.Publisher("toy/local", source=run.steps[0], workspace=run.ada) as publisher:
        first = publisher.publish(run.steps[1])
        mask = maskreg.extract(run.steps[0], run.steps[1], "toy/mask", mask_only=True, workspace=run.ada)
        maskreg.tag("toy/mask", "toy/local:latest", workspace=run.ada)
        assert run.ada.find("toy/local").digest == mask.digest
        with pytest.raises(BrokenChainError):
            publisher.publish(run.steps[2])
        assert first is not None
        maskreg.tag(f"toy/local@{first.digest}", "latest", workspace=run.ada)
        second = publisher.publish(run.steps[2])
        assert second is not None
        assert second.manifest.parents == (first.digest,)
        # Without the tag the run begins again, from its source.
        maskreg.remove("toy/local", workspace=run.ada)
        again = publisher.publish(run.steps[3])
        assert again is not None
        assert (again.manifest.parents, again.manifest.source) == ((), first.manifest.source)


def test_wider_weights_are_published_in_bf16(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    masters = {name: widened(moved(tensor, 0.1, int(rng.integers(99)))) for name, tensor in SOURCE.items()}
    first = run.publisher.publish(make_checkpoint(tmp_path / "masters", masters))
    assert first is not None
    assert run.publish(4).manifest.source.root == first.manifest.target.root


def test_what_cannot_be_published_is_refused(ada: maskreg.Workspace, lab: Lab, tmp_path: Path) -> None:
    steps = lab.states(1)
    with pytest.raises(UsageError, match="toy/run") as caught:
        maskreg.publish(steps[1], "toy/run", workspace=ada)
    assert "source=" in caught.value.hint
    with maskreg.Publisher("toy/run", source=steps[0], workspace=ada) as publisher, pytest.raises(UsageError):
        publisher.publish(None)  # type: ignore[arg-type]
    other = make_checkpoint(tmp_path / "other", {**SOURCE, "new.weight": bf16((4, 4), 9)})
    with pytest.raises(maskreg.DataError, match=r"new\.weight "):
        maskreg.publish(other, "toy/run", source=steps[0], workspace=ada)
