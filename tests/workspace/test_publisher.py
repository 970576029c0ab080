"""What a publisher holds between links, and when it moves on: failed uploads, other places, and publishing beside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

import maskreg
from maskreg.errors import PairMismatchError, UsageError
from maskreg.parallel import DaemonPool
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved, widened
from tests.workspace.conftest import SOURCE, Run


@contextmanager
def without_remote(run: Run) -> Iterator[None]:
    """The remote is taken away and put back: its folder is replaced by a file."""
    folder = run.out.parent / "team"
    away = folder.rename(folder.with_name("away"))
    folder.write_text("")
    yield
    folder.unlink()
    away.rename(folder)


def test_a_failed_upload_leaves_the_baseline_until_the_next_link(run: Run) -> None:
    first = run.publish(1)
    with without_remote(run), pytest.raises(maskreg.MaskregError):
        run.publish(2)
    stored = run.links()[-1]
    assert stored.digest != first.digest
    # The next link stands on the one that was not pushed, and both are pushed now.
    third = run.publish(3)
    assert third.manifest.parents == (stored.digest,)
    assert third.manifest.source.root == stored.manifest.target.root
    assert run.ada.remote("team").resolve(run.publisher.ref).digest == third.digest
    with run.follower() as follower:
        follower.step()
    assert run.is_at(3)


def test_the_same_weights_are_pushed_again_after_a_failed_upload(run: Run) -> None:
    run.publish(1)
    with without_remote(run), pytest.raises(maskreg.MaskregError):
        run.publish(2)
    again = run.publish(2)
    assert again.moved is False
    assert again.pushed is not None
    assert run.ada.remote("team").resolve(run.publisher.ref).digest == again.digest


def test_another_writer_s_link_is_what_the_next_one_stands_on(run: Run) -> None:
    run.publish(1)
    theirs = maskreg.publish(run.steps[2], "toy/run", source=run.steps[0], workspace=run.ada)
    assert theirs is not None
    assert run.publish(3).manifest.parents == (theirs.digest,)


@pytest.mark.parametrize("baseline", ["memory", "disk"])
def test_links_are_the_same_wherever_the_baseline_is(baseline: str, run: Run, tmp_path: Path) -> None:
    run.publish(1, 2, 3)
    staging = run.bob.root / "staging"
    with maskreg.Publisher("toy/run", source=run.steps[0], baseline=baseline, workspace=run.bob) as other:  # type: ignore[arg-type]
        links = [other.publish(run.steps[number]) for number in (1, 2, 3)]
        held = {path.name for path in staging.rglob("*") if path.is_file()}
    assert [link.digest for link in links if link] == [link.digest for link in run.links()]
    assert ("weights" in held) is (baseline == "disk")
    assert [*staging.iterdir()] == []


def test_links_written_beside_are_those_that_are_waited_for(run: Run) -> None:
    run.publish(1, 2, 3)
    with maskreg.Publisher("toy/run", source=run.steps[0], workspace=run.bob) as other:
        published = []
        for number in (1, 2, 3):
            assert other.publish(run.steps[number], async_=True) is None
            published.append(other.wait())
        assert other.wait() is None
    assert [link.digest for link in published if link] == [link.digest for link in run.links()]


def test_an_error_beside_is_raised_by_the_next_call(run: Run) -> None:
    run.publish(1)
    with without_remote(run), pytest.raises(maskreg.MaskregError):
        assert run.publisher.publish(run.steps[2], async_=True) is None
        run.publisher.publish(run.steps[3])
    assert run.publish(3).manifest.parents == (run.links()[1].digest,)


def test_a_publication_is_skipped_while_another_is_on_its_way(run: Run) -> None:
    run.publish(1)
    begun, free = Event(), Event()

    def hold(message: object) -> None:
        begun.set()
        free.wait()

    # The tag's move is told in the middle of a publication.
    run.ada.note = hold
    run.publisher.publish(run.steps[2], async_=True)
    begun.wait()
    assert run.publisher.publish(run.steps[3], async_=True, when_busy="skip") is None
    waiting = DaemonPool(1, "test").submit(run.publish, 4)
    free.set()
    assert waiting.result().manifest.parents == (run.links()[1].digest,)
    assert len(run.links()) == 3


def test_wide_and_opaque_tensors_go_on_as_whole_ones(run: Run, tmp_path: Path) -> None:
    scale: Tensor = widened(bf16((3, 5), 7))
    steps = [{**SOURCE, "scale": scale, "lm_head.weight": SOURCE["model.embed_tokens.weight"]}]
    for step in range(2):
        tensors = {name: moved(tensor, 0.2, step) for name, tensor in SOURCE.items()}
        bits = scale[1].copy()
        bits[step] ^= 1
        steps.append({**tensors, "scale": (scale[0], bits), "lm_head.weight": tensors["model.embed_tokens.weight"]})
    paths = [make_checkpoint(tmp_path / f"wide-{number}", tensors) for number, tensors in enumerate(steps)]
    parts = ("mask", "delta", "reverse")
    with maskreg.Publisher("toy/wide", source=paths[0], parts=parts, workspace=run.ada) as publisher:
        first, second = (publisher.publish(path) for path in paths[1:])
    assert first is not None
    assert second is not None
    assert first.digest == maskreg.extract(paths[0], paths[1], reversible=True, workspace=run.ada).digest
    assert (
        second.manifest.totals
        == maskreg.extract(paths[1], paths[2], reversible=True, workspace=run.ada).manifest.totals
    )


def test_what_a_link_cannot_hold_is_refused(run: Run, tmp_path: Path) -> None:
    scale = bf16((3, 5), 7)
    source = make_checkpoint(tmp_path / "wide", {**SOURCE, "scale": widened(scale)})
    target = make_checkpoint(tmp_path / "narrow", {**SOURCE, "scale": scale})
    with maskreg.Publisher("toy/wide", source=source, workspace=run.ada) as publisher:
        with pytest.raises(PairMismatchError) as caught:
            publisher.publish(target)
        assert caught.value.tensors == ("scale",)
        with pytest.raises(UsageError):
            publisher.publish(target, when_busy="never")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        maskreg.Publisher("toy/run", baseline="tape", workspace=run.ada)  # type: ignore[arg-type]
