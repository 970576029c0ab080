"""Push: what travels, what is not sent again, what is refused, and who wins."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, NotFoundError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.verify import verify
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF, Heard, objects, second
from tests.registry.steps import Steps


def test_everything_travels_and_nothing_twice(local: Registry, remote: Registry, digest: Digest) -> None:
    heard = Heard()
    pushed = push(local, remote, REF, progress=heard)
    assert pushed.parts == {"mask", "delta", "reverse"}
    assert (pushed.ref, pushed.digest, pushed.remote) == (REF, digest, remote.name)
    entry = remote.live(REF)
    assert (entry.ref, entry.digest, entry.card) == (REF, digest, CARD)
    assert pushed.sent_bytes == heard.promised == heard.done == local.artifact(digest).manifest.size
    assert objects(remote, digest) == objects(local, digest)
    again = push(local, remote, REF)
    assert (again.sent_objects, again.sent_bytes, again.reused_bytes) == (0, 0, pushed.sent_bytes)
    assert len(remote.history(REF)) == 1


def test_a_registry_gets_its_identity_from_the_first_write_alone(
    local: Registry, remote: Registry, digest: Digest, empty: Registry
) -> None:
    with pytest.raises(NotFoundError):
        pull(empty, remote, REF)
    assert list(remote.store.list("")) == []
    assert remote.uuid == ""
    push(local, remote, REF)
    assert second(remote).uuid == remote.uuid != local.uuid != ""


def test_the_manifest_is_written_anew_each_time(local: Registry, remote: Registry, digest: Digest) -> None:
    push(local, remote, REF)
    before = remote.store.head(artifact_prefix(digest) + MANIFEST)
    push(local, remote, REF)
    after = remote.store.head(artifact_prefix(digest) + MANIFEST)
    assert before is not None
    assert after is not None
    assert after.modified > before.modified


def test_another_tag(local: Registry, remote: Registry, digest: Digest) -> None:
    push(local, remote, REF, tag="v3")
    assert remote.resolve(REF.with_tag("v3")).digest == digest
    with pytest.raises(NotFoundError, match="there is no team/qwen3-8b-opd in lab") as caught:
        remote.resolve(REF)
    assert next_step(caught.value) == "maskreg list qwen3-8b-opd --remote lab"


def test_a_pinned_reference_is_pushed_under_its_tag(local: Registry, remote: Registry, other: Digest) -> None:
    pushed = push(local, remote, Ref.parse(f"mine:v1@{other}"))
    entry = remote.live(pushed.ref)
    assert (pushed.digest, entry.tag, entry.digest, entry.card) == (other, "v1", other, Card())


def test_a_damaged_object_is_not_sent(local: Registry, remote: Registry, digest: Digest) -> None:
    key = artifact_prefix(digest) + "files/config.json"
    local.store.put(key, b"[]")
    with pytest.raises(CorruptError) as caught:
        push(local, remote, REF)
    assert caught.value.key == key
    assert remote.refs.head(REF) is None
    assert remote.store.head(key) is None


def test_a_part_in_pieces_is_not_sent(local: Registry, remote: Registry, digest: Digest) -> None:
    local.store.delete([artifact_prefix(digest) + "files/config.json"])
    with pytest.raises(CorruptError):
        push(local, remote, REF)
    assert list(remote.store.list("")) == []


def test_who_is_slower_learns_who_won(local: Registry, remote: Registry, digest: Digest, other: Digest) -> None:
    local.publish(Ref.parse("team/mine"), other, card=Card())
    mine = REF.with_tag("race")

    class Slow(Steps):
        def create(self, key: str, data: bytes) -> bool:
            if key.startswith("refs/") and not moved:
                moved.append(second(remote).append(mine, other, card=Card(), after=None))
            return super().create(key, data)

    moved: list[object] = []
    with pytest.raises(ConflictError, match="bob@there"):
        push(local, Registry(Slow(remote.store), name="lab"), REF, tag="race")
    assert remote.resolve(mine).digest == other


def test_many_at_once_move_one_tag_and_one_wins(local: Registry, remote: Registry, tmp_path: Path) -> None:
    assert local.root is not None
    digests = [write(local.root, {"w": pair(i)["model.norm.weight"]}, parts=("mask", "delta")) for i in range(6)]
    for i, digest in enumerate(digests):
        local.publish(Ref.parse(f"candidate:v{i}"), digest, card=Card())
    tag = Ref.parse("candidate:best")
    ready = threading.Barrier(len(digests))
    outcomes: list[str] = []

    class Ready(Steps):
        def create(self, key: str, data: bytes) -> bool:
            if key.startswith("refs/"):
                ready.wait()
            return super().create(key, data)

    def run(i: int) -> None:
        there = Registry(Ready(remote.store), name="lab", by=f"user{i}")
        try:
            push(local, there, Ref.parse(f"candidate:v{i}"), tag="best", jobs=1)
            outcomes.append("won")
        except ConflictError:
            outcomes.append("lost")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(digests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 5 + ["won"]
    assert [entry.n for entry in remote.history(tag)] == [1]
    assert verify(remote).ok
