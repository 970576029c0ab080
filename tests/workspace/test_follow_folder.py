"""A folder that follows a tag."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import maskreg
from maskreg.digest import Digest
from maskreg.errors import MissingLinkError, NotOnChainError, OutputExistsError, TryAgainError, UsageError
from tests.checkpoints import bf16, make_checkpoint
from tests.workspace.conftest import SOURCE, Lab, Run, contents, step


def test_a_folder_is_where_the_tag_is(run: Run) -> None:
    with run.follower() as following:
        for number in range(1, 4):
            link = run.publish(number)
            followed = step(following)
            assert (followed.digest, followed.links, followed.card.meta) == (link.digest, 1, {"step": str(number)})
            assert followed.bytes == link.size
            assert run.is_at(number)
            assert following.step() is None
    # The current checkpoint and the one before.
    assert len([path for path in run.out.iterdir() if not path.is_symlink() and path.name != ".maskreg"]) == 2
    # Nothing stays in the registry: what follows for weeks must not fill the disk.
    assert not list(run.bob.local.refs.tags())
    assert not [path for path in run.bob.root.rglob("*") if "sha256" in path.parts]
    assert list((run.bob.root / "staging").iterdir()) == []


def test_it_goes_on_after_a_restart_and_catches_up(lab: Lab, run: Run) -> None:
    run.publish(1)
    with run.follower() as following:
        step(following)
    run.publish(2, 3, 4)
    with run.follower(source=lab.target) as following:  # the source is not needed: the folder stands at a link
        assert step(following).links == 3
    assert run.is_at(4)
    with run.follower() as following:
        again = following.step()
        assert again is None or again.links == 0


def test_the_source_may_be_any_state_of_the_chain(lab: Lab, run: Run) -> None:
    run.publish(1, 2, 3)
    for number, links in ((2, 1), (3, 0)):
        out = lab.folder / f"served-{number}"
        with run.follower(out, run.steps[number]) as following:
            assert step(following).links == links
        assert run.is_at(3, out)
    other = make_checkpoint(lab.folder / "other", {name: bf16(tensor[1].shape, 99) for name, tensor in SOURCE.items()})
    for stranger in (lab.target, other):
        with run.follower(source=stranger) as following, pytest.raises(NotOnChainError):
            following.step()
        assert not run.out.exists()


def test_a_slow_reader_takes_what_was_squashed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.publish(1, 2, 3, 4)
    monkeypatch.setattr("maskreg.registry.chains.LONG", 2)
    maskreg.squash("toy/run", "toy/run:to-4", workspace=run.ada)
    maskreg.push("toy/run:to-4", parts=["delta"], workspace=run.ada)
    run.publish(5)
    with run.follower() as following:
        assert step(following).links == 2
    assert run.is_at(5)


def test_a_missing_link_is_waited_for_or_gone_around(lab: Lab, run: Run) -> None:
    run.publish(1, 2, 3)
    _, second, third = run.links()
    (lab.folder / "aside").mkdir()
    shutil.move(lab.folder / "team/artifacts/sha256" / second.digest.hex, lab.folder / "aside")
    with run.follower() as following:
        with pytest.raises(MissingLinkError, match=f"{third.digest.short} .*{second.digest.short}"):
            following.step()
        maskreg.squash("toy/run", "toy/run:whole", workspace=run.ada)
        maskreg.push("toy/run:whole", workspace=run.ada)
        assert step(following).links == 1
    assert run.is_at(3)


@pytest.mark.parametrize("reversible", [False, True])
def test_a_tag_that_moved_back_is_followed(run: Run, reversible: bool) -> None:
    how = {
        "source": run.steps[0],
        "remote": "team",
        "parts": ("delta", "reverse") if reversible else ("delta",),
        "workspace": run.ada,
    }
    with maskreg.Publisher("toy/run", **how) as publisher:  # type: ignore[arg-type]
        for number in (1, 2, 3):
            publisher.publish(run.steps[number])
        with run.follower() as following:
            step(following)
            maskreg.tag(f"toy/run@{run.links()[1].digest}", "latest", workspace=run.ada)
            maskreg.push("toy/run", workspace=run.ada)
            assert step(following).links == (1 if reversible else 2)
            assert run.is_at(2)
            publisher.publish(run.steps[5])
            step(following)
            assert run.is_at(5)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights.write_bytes(weights.read_bytes()[:-1] + b"x"),
        lambda weights: weights.write_bytes(weights.read_bytes()[:-1]),
        Path.unlink,
        # Weights that are gone behind a link in place of the folder.
        lambda weights: (
            weights.unlink() or weights.parent.symlink_to(weights.parent.rename(weights.parents[2] / "aside"))
        ),
    ],
    ids=["changed", "cut", "gone", "linked"],
)
def test_a_changed_checkpoint_is_made_again(run: Run, change: Callable[[Path], object], restarts: bool) -> None:
    run.publish(1)
    with run.follower() as following:
        following.step()
        change((run.out / "current").resolve() / "model.safetensors")
        if not restarts:
            run.publish(2)
            following.step()
    if restarts:
        with run.follower() as following:
            following.step()
    assert run.is_at(1 if restarts else 2)


def test_what_stands_in_place_of_the_link_is_left_alone(run: Run) -> None:
    run.publish(1)
    with run.follower() as following:
        following.step()
        (run.out / "current").unlink()
        (run.out / "current").write_text("mine")
        run.publish(2)
        with pytest.raises(OutputExistsError):
            following.step()
    with run.follower() as following, pytest.raises(OutputExistsError):
        following.step()
    assert (run.out / "current").read_text() == "mine"


def test_links_wait_until_it_is_safe(run: Run) -> None:
    run.publish(1)
    with run.follower() as following:
        assert following.fetch()
        assert not (run.out / "current").exists()
        assert following.apply() is not None
        assert following.wait(0) is None


def test_a_lock_that_another_process_is_removing_holds_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = run.out / ".maskreg" / "lock"
    monkeypatch.setattr(fcntl, "flock", lambda *_: lock.unlink(missing_ok=True))
    with pytest.raises(TryAgainError):
        run.follower()


def test_what_is_not_its_own_is_left_alone(lab: Lab, run: Run) -> None:
    run.publish(1)
    with pytest.raises(OutputExistsError):
        run.follower(lab.source)
    with run.follower() as following:
        with pytest.raises(TryAgainError):
            run.follower()
        (run.out / "notes.txt").write_text("mine")
        following.step()
    assert (run.out / "notes.txt").exists()


def test_what_cannot_be_followed_is_refused_before_anything_is_made(lab: Lab, run: Run) -> None:
    with pytest.raises(UsageError, match="keep=0"):
        run.follower(keep=0)
    with pytest.raises(UsageError, match="toy/run@sha256:"):
        maskreg.follow_folder(f"toy/run@{Digest.of(b'')}", run.out, run.steps[0], workspace=run.bob)
    with pytest.raises(maskreg.NotFoundError, match="source: "):
        run.follower(source=lab.folder / "nowhere")
    assert not run.out.exists()


def test_without_a_remote_the_local_registry_is_followed(lab: Lab, run: Run) -> None:
    with lab.workspace("carol") as carol:
        maskreg.publish(run.steps[1], "toy/run", source=run.steps[0], workspace=carol)
        with run.follower(workspace=carol) as following:
            following.step()
    assert run.is_at(1)


def test_small_files_follow_too(run: Run) -> None:
    files = [{"config.json": b"{}"}, {"config.json": b"{}", "chat.json": b"[]"}, {}]
    with run.follower() as following:
        for number, brought in enumerate(files, 1):
            for name, data in brought.items():
                (run.steps[number] / name).write_bytes(data)
            run.publish(number)
            following.step()
            kept = {"chat.json": b"[]"} if number == 3 else {}
            assert contents((run.out / "current").resolve()) == {**kept, **contents(run.steps[number])}
