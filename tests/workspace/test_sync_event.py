"""One event a sync: the publisher and its followers say the same of a version, in Python, in the log and as figures."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.errors import UsageError
from maskreg.workspace.sync_event import SyncEvent
from tests.checkpoints import bf16, make_checkpoint
from tests.workspace.conftest import SOURCE, Run, step

COUNTS = ("moved", "moved_share", "tensors_changed", "tensors_skipped", "tensors_full")


def moved_between(before: Path, after: Path) -> int:
    with open_checkpoint(before) as old, open_checkpoint(after) as new:
        return sum(
            int((old.read(name, 0, info.numel) != new.read(name, 0, info.numel)).sum())
            for name, info in old.tensors.items()
        )


def test_both_sides_say_the_same_of_a_version(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "maskreg.sync"), run.follower() as follower:
        run.publish(1)
        follower.step()
        caplog.clear()
        published, followed = run.publish(2).event, step(follower)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "maskreg.sync"]
    assert lines == [published.to_json(), followed.to_json()]
    assert set(lines[1]) - set(lines[0]) == {"root", "links", "card", "out"}
    assert {name: getattr(published, name) for name in COUNTS} == {name: getattr(followed, name) for name in COUNTS}
    assert published.moved == moved_between(run.steps[1], run.steps[2])
    assert (published.tensors_changed, published.tensors_skipped, published.tensors_full) == (3, 0, 0)
    assert (published.digest, published.ref) == (followed.digest, followed.ref)
    assert published.bytes > 0 and followed.bytes > 0
    assert (set(published.seconds), set(followed.seconds)) == ({"find", "code", "push"}, {"fetch", "stage", "apply"})
    figures = published.figures()
    assert figures["sync/bytes"] == published.bytes and figures["sync/push_s"] == published.seconds["push"]


def test_tensors_that_stay_are_skipped_and_links_add_up(run: Run) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    states = [make_checkpoint(run.out.parent / f"one-{n}", {**SOURCE, name: bf16((64, 16), 40 + n)}) for n in (1, 2)]
    events: list[SyncEvent] = []
    for state in states:
        published = run.publisher.publish(state)
        assert published is not None
        events.append(published.event)
    assert [(event.tensors_changed, event.tensors_skipped) for event in events] == [(1, 2)] * 2
    again = run.publisher.publish(states[-1])
    assert again is not None and not again.moved
    assert (again.event.moved, again.event.bytes, again.event.tensors_changed) == (0, 0, 0)
    with run.follower() as follower:
        followed = step(follower)
    assert followed.links == 2
    assert followed.moved == sum(event.moved for event in events)
    assert (followed.tensors_changed, followed.tensors_skipped) == (1, 2)


@pytest.mark.parametrize("name", ["", "a b", "-", "x" * 101, "é", "a/b"])
def test_a_replica_has_a_clean_name(run: Run, name: str) -> None:
    with pytest.raises(UsageError):
        run.follower(replica=name)
    run.follower(replica="rollout-1:8000").close()
