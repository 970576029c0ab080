"""A folder that follows a tag."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import maskreg
from maskreg.digest import Digest
from maskreg.errors import (
    MissingLinkError,
    NotOnChainError,
    OutputExistsError,
    TryAgainError,
    UsageError,
)
from tests.checkpoints import bf16, make_checkpoint
from tests.workspace.conftest import SOURCE, Lab, contents
from tests.workspace.test_publish import chain, states

RUN = maskreg.Ref("toy", "run")


@pytest.fixture
def steps(lab: Lab) -> list[Path]:
    return states(lab, 6)


@pytest.fixture
def bob(lab: Lab) -> Iterator[maskreg.Workspace]:
    with lab.workspace("bob") as workspace:
        maskreg.remotes.add("team", lab.folder / "team", workspace=workspace)
        yield workspace


@pytest.fixture
def run(ada: maskreg.Workspace, steps: list[Path]) -> Iterator[maskreg.Publisher]:
    with maskreg.Publisher(RUN, source=steps[0], remote="team", workspace=ada) as publisher:
        yield publisher


def follower(bob: maskreg.Workspace, out: Path, source: Path) -> maskreg.Follower:
    return maskreg.follow_folder(RUN, out, source, every_s=0, workspace=bob)


def is_at(out: Path, step: Path) -> bool:
    return contents((out / "current").resolve()) == contents(step)


def test_a_folder_is_where_the_tag_is(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    out = lab.folder / "served"
    with follower(bob, out, steps[0]) as following:
        for number in range(1, 4):
            link = run.publish(steps[number], meta={"step": str(number)})
            followed = following.step()
            assert followed is not None
            assert (followed.digest, followed.links, followed.card.meta) == (link.digest, 1, {"step": str(number)})
            assert followed.bytes < link.size  # the mask stays where it is
            assert is_at(out, steps[number])
            assert following.step() is None
    # The current checkpoint and the one before.
    assert len([path for path in out.iterdir() if not path.is_symlink() and path.name != ".maskreg"]) == 2
    # Nothing stays in the registry: what follows for weeks must not fill the disk.
    assert not list(bob.local.refs.tags())
    assert not [path for path in bob.root.rglob("*") if "sha256" in path.parts]
    assert list((bob.root / "staging").iterdir()) == []


def test_it_goes_on_after_a_restart_and_catches_up(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    out = lab.folder / "served"
    run.publish(steps[1])
    with follower(bob, out, steps[0]) as following:
        assert following.step() is not None
    for step in steps[2:5]:
        run.publish(step)
    with follower(bob, out, lab.target) as following:  # the source is not needed: the folder stands at a link
        followed = following.step()
        assert followed is not None
        assert followed.links == 3
    assert is_at(out, steps[4])
    with follower(bob, out, steps[0]) as following:
        again = following.step()
        assert again is None or again.links == 0


def test_the_source_may_be_any_state_of_the_chain(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    for step in steps[1:4]:
        run.publish(step)
    for number, links in ((2, 1), (3, 0)):
        with follower(bob, lab.folder / f"served-{number}", steps[number]) as following:
            followed = following.step()
            assert followed is not None
            assert followed.links == links
        assert is_at(lab.folder / f"served-{number}", steps[3])
    with (
        follower(bob, lab.folder / "stranger", lab.target) as following,
        pytest.raises(NotOnChainError, match="no link leads"),
    ):
        following.step()


def test_a_slow_reader_takes_what_was_squashed(
    lab: Lab,
    ada: maskreg.Workspace,
    run: maskreg.Publisher,
    bob: maskreg.Workspace,
    steps: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for step in steps[1:5]:
        run.publish(step)
    monkeypatch.setattr("maskreg.registry.chains.LONG", 2)
    maskreg.squash(RUN, "toy/run:to-4", workspace=ada)
    maskreg.push("toy/run:to-4", parts=["delta"], workspace=ada)
    run.publish(steps[5])
    with follower(bob, lab.folder / "served", steps[0]) as following:
        followed = following.step()
    assert followed is not None
    assert followed.links == 2
    assert is_at(lab.folder / "served", steps[5])


def test_a_missing_link_is_waited_for_or_gone_around(
    lab: Lab, ada: maskreg.Workspace, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    for step in steps[1:4]:
        run.publish(step)
    second = chain(ada, "toy/run")[1]
    prefix = f"artifacts/sha256/{second.digest.hex}"
    (lab.folder / "aside").mkdir()
    shutil.move(lab.folder / "team" / prefix, lab.folder / "aside")
    out = lab.folder / "served"
    with follower(bob, out, steps[0]) as following:
        third = chain(ada, "toy/run")[2]
        with pytest.raises(MissingLinkError, match=f"{third.digest.short} stands on {second.digest.short}"):
            following.step()
        maskreg.squash(RUN, "toy/run:whole", workspace=ada)
        maskreg.push("toy/run:whole", workspace=ada)
        followed = following.step()
        assert followed is not None
        assert followed.links == 1
    assert is_at(out, steps[3])


def test_a_tag_that_moved_back_is_followed(
    lab: Lab, ada: maskreg.Workspace, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    out = lab.folder / "served"
    for step in steps[1:4]:
        run.publish(step)
    with follower(bob, out, steps[0]) as following:
        following.step()
        first = chain(ada, "toy/run")[0]
        maskreg.tag(maskreg.Ref("toy", "run", digest=first.digest), "latest", workspace=ada)
        maskreg.push(RUN, workspace=ada)
        following.step()
        assert is_at(out, steps[1])
        run.publish(steps[5])
        following.step()
        assert is_at(out, steps[5])


def test_a_reversible_chain_is_walked_back(
    lab: Lab, ada: maskreg.Workspace, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    with maskreg.Publisher(RUN, source=steps[0], remote="team", reversible=True, workspace=ada) as run:
        for step in steps[1:4]:
            run.publish(step)
    out = lab.folder / "served"
    with follower(bob, out, steps[0]) as following:
        following.step()
        second = chain(ada, "toy/run")[1]
        maskreg.tag(maskreg.Ref("toy", "run", digest=second.digest), "latest", workspace=ada)
        maskreg.push(RUN, workspace=ada)
        followed = following.step()
    assert followed is not None
    assert followed.links == 1
    assert is_at(out, steps[2])


def flipped(weights: Path) -> None:
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


def cut_short(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-1])


@pytest.mark.parametrize("change", [flipped, cut_short, Path.unlink])
def test_a_changed_checkpoint_is_made_again(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path], change: Callable[[Path], None]
) -> None:
    out = lab.folder / "served"
    run.publish(steps[1])
    with follower(bob, out, steps[0]) as following:
        following.step()
        change((out / "current").resolve() / "model.safetensors")
        run.publish(steps[2])
        with pytest.raises(TryAgainError, match="was changed after it was written, and is made again"):
            following.step()
        following.step()
    assert is_at(out, steps[2])


def test_what_stands_in_place_of_the_link_is_left_alone(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    out = lab.folder / "served"
    run.publish(steps[1])
    with follower(bob, out, steps[0]) as following:
        following.step()
        (out / "current").unlink()
        (out / "current").mkdir()
        run.publish(steps[2])
        with pytest.raises(OutputExistsError, match="current is not the link that follow made"):
            following.step()
        (out / "current").rmdir()
        (out / "current").write_text("mine")
    with follower(bob, out, steps[0]) as following, pytest.raises(OutputExistsError, match="is not the link"):
        following.step()
    assert (out / "current").read_text() == "mine"


def test_links_wait_until_it_is_safe(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    out, safe = lab.folder / "served", False
    run.publish(steps[1])
    with maskreg.follow_folder(RUN, out, steps[0], every_s=0, safe=lambda: safe, workspace=bob) as following:
        assert following.step() is None
        assert not (out / "current").exists()
        safe = True
        assert following.step() is not None
        assert following.wait(0) is None


def test_what_is_not_its_own_is_left_alone(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    run.publish(steps[1])
    with pytest.raises(OutputExistsError, match="exists already and holds other files"):
        follower(bob, lab.source, steps[0])
    out = lab.folder / "served"
    with follower(bob, out, steps[0]) as following:
        with pytest.raises(TryAgainError, match="another process follows"):
            follower(bob, out, steps[0])
        (out / "notes.txt").write_text("mine")
        following.step()
    assert (out / "notes.txt").exists()
    with pytest.raises(UsageError, match="has to stay"):
        maskreg.follow_folder(RUN, out, steps[0], keep=0, workspace=bob)
    with pytest.raises(UsageError, match="never moves"):
        maskreg.follow_folder(maskreg.Ref("toy", "run", digest=Digest.of(b"")), out, steps[0], workspace=bob)
    with pytest.raises(maskreg.NotFoundError, match="source: "):
        follower(bob, lab.folder / "unborn", lab.folder / "nowhere")
    assert not (lab.folder / "unborn").exists()


def test_without_a_remote_the_local_registry_is_followed(lab: Lab, steps: list[Path]) -> None:
    with lab.workspace("carol") as carol:
        maskreg.publish(steps[1], RUN, source=steps[0], workspace=carol)
        with follower(carol, lab.folder / "served", steps[0]) as following:
            following.step()
    assert is_at(lab.folder / "served", steps[1])


def test_small_files_follow_too(lab: Lab, bob: maskreg.Workspace, ada: maskreg.Workspace, steps: list[Path]) -> None:
    files = [{"config.json": b"{}"}, {"config.json": b"{}", "chat.json": b"[]"}, {}]
    with (
        maskreg.Publisher(RUN, source=steps[0], remote="team", workspace=ada) as run,
        follower(bob, lab.folder / "served", steps[0]) as following,
    ):
        for step, brought in zip(steps[1:4], files, strict=True):
            for name, data in brought.items():
                (step / name).write_bytes(data)
            run.publish(step)
            following.step()
            own = {} if "chat.json" in brought else {"chat.json": b"[]"} if step == steps[3] else {}
            assert contents((lab.folder / "served" / "current").resolve()) == {**own, **contents(step)}


def test_other_weights_are_refused_before_anything_is_written(
    lab: Lab, run: maskreg.Publisher, bob: maskreg.Workspace, steps: list[Path]
) -> None:
    run.publish(steps[1])
    other = make_checkpoint(lab.folder / "other", {name: bf16(tensor[1].shape, 99) for name, tensor in SOURCE.items()})
    with follower(bob, lab.folder / "served", other) as following, pytest.raises(NotOnChainError):
        following.step()
    assert not (lab.folder / "served" / "current").exists()
