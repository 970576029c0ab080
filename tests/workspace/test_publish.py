"""Publishing again and again: links that stand on one another, and squashing them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.errors import BrokenChainError, MissingLinkError, UsageError
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved, widened
from tests.workspace.conftest import SOURCE, Lab


def states(lab: Lab, count: int) -> list[Path]:
    """The source and what ``count`` steps made of it, each of which moves some coordinates."""
    tensors: dict[str, Tensor] = dict(SOURCE)
    paths = [lab.source]
    for step in range(1, count + 1):
        tensors = {name: moved(tensor, 0.05, 100 * step + n) for n, (name, tensor) in enumerate(tensors.items())}
        paths.append(make_checkpoint(lab.folder / f"step-{step}", tensors))
    return paths


@pytest.fixture
def steps(lab: Lab) -> list[Path]:
    return states(lab, 4)


@pytest.fixture
def run(ada: maskreg.Workspace, steps: list[Path]) -> Iterator[maskreg.Publisher]:
    """A publisher that has published the first three steps as ``toy/run``."""
    with maskreg.Publisher("toy/run", source=steps[0], family="toy", workspace=ada) as publisher:
        for step in steps[1:4]:
            publisher.publish(step, meta={"step": step.name})
        yield publisher


def chain(workspace: maskreg.Workspace, ref: str) -> list[maskreg.Artifact]:
    """The artifacts that a tag has pointed to, the first first."""
    return [
        workspace.local.artifact(entry.digest)
        for entry in workspace.local.history(maskreg.Ref.parse(ref))
        if entry.digest
    ]


def test_every_link_stands_on_the_one_before(run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]) -> None:
    first, second, third = chain(ada, "toy/run")
    assert first.digest == maskreg.extract(steps[0], steps[1], workspace=ada).digest
    assert (first.manifest.parents, first.manifest.recipe) == ((), None)
    assert second.manifest.parents == (first.digest,)
    assert third.manifest.parents == (second.digest,)
    assert third.manifest.recipe == {"kind": "link"}
    assert [link.manifest.source.root for link in (second, third)] == [
        link.manifest.target.root for link in (first, second)
    ]
    assert ada.find("toy/run").card.meta == {"step": "step-3"}


def test_a_publisher_that_starts_again_goes_on_where_the_links_end(
    run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]
) -> None:
    run.close()
    # By a source that links lead away from, and by one that is found.
    again = maskreg.publish(steps[4], "toy/run", source=steps[2], workspace=ada)
    assert again.manifest.parents == (chain(ada, "toy/run")[2].digest,)
    assert maskreg.publish(steps[4], "toy/run", workspace=ada).moved is False
    assert len(chain(ada, "toy/run")) == 4


def test_squashing_gives_what_extracting_the_ends_gives(
    run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]
) -> None:
    whole = maskreg.squash("toy/run", "toy/run:whole", workspace=ada)
    assert whole.digest == maskreg.extract(steps[0], steps[3], workspace=ada).digest
    part = maskreg.squash("toy/run", since=chain(ada, "toy/run")[0], source=steps[1], workspace=ada)
    assert part.digest == maskreg.extract(steps[1], steps[3], workspace=ada).digest
    assert whole.card.family == "toy"


def test_squashing_needs_links_between_the_ends(
    run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]
) -> None:
    with pytest.raises(UsageError, match="nothing to squash"):
        maskreg.squash("toy/run", since="toy/run", workspace=ada)
    stranger = maskreg.extract(steps[0], steps[4], "toy/stranger", workspace=ada)
    with pytest.raises(UsageError, match="does not stand on"):
        maskreg.squash("toy/run", since=stranger, workspace=ada)


def test_a_gap_is_refused_with_both_names(run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]) -> None:
    first, second, third = chain(ada, "toy/run")
    wrong = maskreg.extract(steps[1], steps[4], workspace=ada)
    from maskreg.flow.extract.extraction import extract

    with ada.checkpoint(steps[2]) as before, ada.checkpoint(steps[3]) as after:
        broken = extract(before, after, ada.root, parents=[wrong.digest], recipe={"kind": "link"})
    with pytest.raises(BrokenChainError, match=f"{broken.digest.short} stands on {wrong.digest.short}"):
        maskreg.squash(broken.digest, workspace=ada)
    manifest = ada.root / "artifacts" / "sha256" / first.digest.hex / "manifest.json"
    manifest.unlink()
    with pytest.raises(MissingLinkError, match=f"{second.digest.short} stands on {first.digest.short}") as raised:
        maskreg.squash("toy/run", workspace=ada)
    assert next_step(raised.value) == f"maskreg pull @{first.digest}"
    assert third.digest == ada.find("toy/run").digest


def test_a_circle_is_not_published(run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]) -> None:
    second = chain(ada, "toy/run")[1]
    with pytest.raises(BrokenChainError, match=f"weights that {second.digest.short} gives") as caught:
        run.publish(steps[2])
    assert "maskreg tag" in next_step(caught.value)
    with pytest.raises(BrokenChainError, match="applies to"):
        run.publish(steps[0])
    # Nothing was published, and the run goes on.
    assert run.publish(steps[4]).manifest.parents == (chain(ada, "toy/run")[2].digest,)


def test_a_tag_that_moved_back_is_where_the_next_link_stands(
    run: maskreg.Publisher, ada: maskreg.Workspace, steps: list[Path]
) -> None:
    second = chain(ada, "toy/run")[1]
    maskreg.tag(maskreg.Ref("toy", "run", digest=second.digest), "latest", workspace=ada)
    link = run.publish(steps[4])
    assert link.manifest.parents == (second.digest,)
    assert link.manifest.source.root == second.manifest.target.root


def test_wider_weights_are_published_in_bf16(ada: maskreg.Workspace, lab: Lab, steps: list[Path]) -> None:
    rng = np.random.default_rng(0)
    masters = {name: widened(moved(tensor, 0.1, int(rng.integers(99)))) for name, tensor in SOURCE.items()}
    with maskreg.Publisher("toy/run", source=steps[0], workspace=ada) as publisher:
        publisher.publish(make_checkpoint(lab.folder / "masters", masters))
        link = publisher.publish(steps[4])
    assert link.manifest.source.root == chain(ada, "toy/run")[0].manifest.target.root


def test_the_first_link_needs_a_source(ada: maskreg.Workspace, steps: list[Path]) -> None:
    with pytest.raises(UsageError, match="there is no toy/run") as caught:
        maskreg.publish(steps[1], "toy/run", workspace=ada)
    assert caught.value.hint == "pass source=CHECKPOINT"


def test_a_remote_gets_all_links(lab: Lab, ada: maskreg.Workspace, steps: list[Path]) -> None:
    with maskreg.Publisher("toy/run", source=steps[0], workspace=ada) as publisher:
        publisher.publish(steps[1])
        publisher.publish(steps[2])
    with maskreg.Publisher("toy/run", source=steps[0], remote="team", workspace=ada) as publisher:
        pushed = publisher.publish(steps[3]).pushed
    assert pushed is not None
    remote = ada.remote("team")
    links = [entry.digest for entry in remote.history(maskreg.Ref("toy", "run"))]
    assert links == [artifact.digest for artifact in chain(ada, "toy/run")]
    assert all(remote.artifact(digest).present() == {"delta"} for digest in links if digest)


def test_a_run_goes_on_elsewhere(lab: Lab, ada: maskreg.Workspace, steps: list[Path]) -> None:
    for step in steps[1:3]:
        maskreg.publish(step, "toy/run", source=steps[0], remote="team", workspace=ada)
    with lab.workspace("bob") as bob:
        maskreg.remotes.add("team", lab.folder / "team", workspace=bob)
        link = maskreg.publish(steps[3], "toy/run", source=steps[0], remote="team", workspace=bob)
        assert link.manifest.parents == (chain(ada, "toy/run")[1].digest,)
        assert ada.remote("team").resolve(maskreg.Ref("toy", "run")).digest == link.digest


def test_a_target_of_another_form_is_refused(ada: maskreg.Workspace, lab: Lab, steps: list[Path]) -> None:
    other = make_checkpoint(lab.folder / "other", {**SOURCE, "new.weight": bf16((4, 4), 9)})
    with pytest.raises(maskreg.DataError, match="only in the target"):
        maskreg.publish(other, "toy/run", source=steps[0], workspace=ada)
