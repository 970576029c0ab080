"""What garbage collection takes, what it leaves alone, and what it says."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, NotFoundError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.tags import remove, restore
from maskreg.registry.transfer import pull, push
from maskreg.registry.verify import verify
from maskreg.store import FileStore
from maskreg.store.entry import entry_key
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF
from tests.registry.steps import Steps

NOW = timedelta(0)


@pytest.fixture
def orphan(local: Registry) -> Digest:
    """An artifact without a name, which the catalog does not know."""
    assert local.root is not None
    return write(local.root, pair(1), parts=("mask", "delta"))


def age(registry: Registry, days: float, digest: Digest) -> None:
    assert isinstance(registry.store, FileStore)
    then = time.time() - days * 86_400
    for info in registry.store.list(artifact_prefix(digest)):
        os.utime(registry.store.path(info.key), (then, then))


def test_only_what_has_no_name_and_is_old_goes(local: Registry, digest: Digest, orphan: Digest) -> None:
    age(local, 30, digest)
    age(local, 6.9, orphan)
    assert collect(local).collected == ()
    age(local, 7.1, orphan)
    size = sum(info.size for info in local.store.list(artifact_prefix(orphan)))
    count = len(list(local.store.list(artifact_prefix(orphan))))
    rehearsed = collect(local, dry_run=True)
    assert local.store.head(artifact_prefix(orphan) + MANIFEST) is not None
    report = collect(local)
    assert report.collected == rehearsed.collected
    assert rehearsed.dry_run
    assert [(g.digest, g.objects, g.bytes) for g in report.collected] == [(orphan, count, size)]
    assert (report.objects, report.bytes, report.spared) == (count, size, ())
    assert not list(local.store.list(artifact_prefix(orphan)))
    assert verify(local).ok
    assert collect(local).collected == ()


def test_the_longest_grace_period_spares_everything(local: Registry, digest: Digest, orphan: Digest) -> None:
    assert collect(local, timedelta.max).collected == ()


def test_a_named_artifact_stays_although_no_catalog_knows_it(local: Registry, digest: Digest) -> None:
    assert local.catalog is not None
    local.catalog.drop_artifact(digest)
    assert collect(local, NOW).collected == ()
    assert verify(local, REF).ok


def test_one_object_that_is_young_keeps_the_rest(local: Registry, orphan: Digest) -> None:
    age(local, 30, orphan)
    assert isinstance(local.store, FileStore)
    local.store.path(artifact_prefix(orphan) + "tensors.json").touch()
    assert collect(local).collected == ()


def test_pieces_without_a_manifest_go(local: Registry, orphan: Digest) -> None:
    local.store.delete([artifact_prefix(orphan) + MANIFEST])
    assert collect(local).collected == ()
    age(local, 8, orphan)
    assert [gone.digest for gone in collect(local).collected] == [orphan]


def test_what_has_a_name_stays_even_without_a_manifest(local: Registry, digest: Digest) -> None:
    local.store.delete([artifact_prefix(digest) + MANIFEST])
    age(local, 30, digest)
    assert collect(local).collected == ()
    assert list(local.store.list(artifact_prefix(digest)))


def test_the_grace_period_also_runs_from_the_removal(local: Registry, digest: Digest) -> None:
    age(local, 30, digest)
    remove(local, REF)
    assert collect(local).collected == ()
    restore(local, REF)
    remove(local, REF)
    age(local, 30, digest)
    assert [gone.digest for gone in collect(local, NOW).collected] == [digest]
    with pytest.raises(NotFoundError):
        restore(local, REF)


def test_the_grace_period_runs_from_the_removal_by_the_stores_clock(
    local: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(local, 30, digest)
    set_clock(monkeypatch, days=-30)
    remove(local, REF)
    monkeypatch.undo()
    assert local.refs.history(REF)[-1].at < datetime.now(UTC) - timedelta(days=29)
    assert collect(local).collected == ()
    restore(local, REF)
    assert verify(local, REF).ok


def test_a_fast_writers_clock_does_not_keep_garbage(
    local: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, days=300)
    remove(local, REF)
    monkeypatch.undo()
    assert isinstance(local.store, FileStore)
    age(local, 30, digest)
    for info in local.store.list("refs/"):
        os.utime(local.store.path(info.key), (time.time() - 8 * 86_400,) * 2)
    assert [gone.digest for gone in collect(local).collected] == [digest]


def set_clock(monkeypatch: pytest.MonkeyPatch, *, days: float) -> None:
    """The writer's clock goes wrong by so much."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=days)

    monkeypatch.setattr("maskreg.store.reflog.datetime", Wrong)


def test_the_grace_period_also_runs_from_the_move(local: Registry, digest: Digest, orphan: Digest) -> None:
    age(local, 30, digest)
    local.publish(REF, orphan, card=CARD)
    assert collect(local).collected == ()
    assert [gone.digest for gone in collect(local, NOW).collected] == [digest]


def test_the_catalog_forgets_what_was_collected(local: Registry, digest: Digest) -> None:
    remove(local, REF)
    collect(local, NOW)
    assert local.catalog is not None
    assert local.catalog.get(digest) is None
    assert local.search(Query()) == []
    event = local.catalog.events(action="gc")[0]
    assert (event.subject, event.by) == (digest, "ada@here")
    assert event.detail["objects"] > 0


def test_what_is_not_ours_stays(local: Registry) -> None:
    local.store.put("artifacts/sha256/notes/readme.txt", b"mine")
    local.store.put("elsewhere/file", b"mine")
    assert collect(local, NOW).collected == ()
    assert local.store.head("artifacts/sha256/notes/readme.txt") is not None
    assert local.store.head("elsewhere/file") is not None


def test_many_at_once(local: Registry, remote: Registry, digest: Digest) -> None:
    push(local, remote, REF)
    for number in range(600):
        remote.store.put(artifact_prefix(Digest.of(str(number).encode())) + "tensors.json", b"x")
    report = collect(remote, NOW)
    assert (len(report.collected), report.bytes) == (600, 600)
    assert verify(remote).artifacts == 1
    assert verify(remote).ok
    assert not list(remote.store.list("doomed/"))


def test_what_comes_back_meanwhile_is_spared(local: Registry, remote: Registry, digest: Digest) -> None:
    push(local, remote, REF)
    remove(remote, REF)

    class Restores(Steps):
        def put(self, key: str, data: bytes) -> None:
            if key.startswith("doomed/"):
                remote.append(REF, digest, card=CARD, after=remote.head(REF))
            super().put(key, data)

    report = collect(Registry(Restores(remote.store), name="lab"), NOW)
    assert (report.collected, report.spared) == ((), (digest,))
    assert verify(remote, REF).ok


def debris(root: Path, name: str, *, days: float) -> Path:
    place = root / name
    place.mkdir(parents=True)
    (place / "piece").write_bytes(b"12345")
    then = time.time() - days * 86_400
    for path in (place / "piece", place):
        os.utime(path, (then, then))
    return place


def test_what_interrupted_work_left_goes(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    root, host = local.root, socket.gethostname()
    dead = f"{host}-{2**22 + 1}-abc"
    old = [
        debris(root, f"staging/{dead}", days=8),
        debris(root, "staging/elsewhere-1-abc", days=8),
        debris(root, f"incoming/{digest.hex}/pull", days=8),
        debris(root, f"incoming/{digest.hex}/{dead}", days=8),
        debris(root, "analysis/" + "0" * 32, days=8),
    ]
    young = [
        debris(root, f"staging/{dead}2", days=6),
        debris(root, f"staging/{host}-{os.getpid()}-abc", days=8),
        debris(root, "incoming/" + "0" * 64 + "/pull", days=6),
        debris(root, "analysis/" + "1" * 32, days=6),
    ]
    lost = root / ".tmp" / f"{host}-{2**22 + 1}-abc"
    lost.write_bytes(b"123")
    os.utime(lost, (1, 1))
    rehearsed = collect(local, dry_run=True)
    assert all(place.exists() for place in (*old, *young))
    report = collect(local)
    assert report.debris_files == rehearsed.debris_files >= len(old)
    assert report.bytes == rehearsed.bytes >= 5 * len(old)
    assert not any(place.exists() for place in (*old, lost))
    assert all(place.exists() for place in young)
    assert verify(local).ok


def test_debris_that_is_a_link_is_not_followed(local: Registry, digest: Digest, tmp_path: Path) -> None:
    assert local.root is not None
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years")
    (local.root / "staging").mkdir(exist_ok=True)
    (local.root / "staging" / "link").symlink_to(precious)
    collect(local, NOW)
    assert (precious / "thesis.tex").exists()


def test_a_pull_after_a_collection_brings_everything_back(
    local: Registry, empty: Registry, remote: Registry, digest: Digest
) -> None:
    push(local, remote, REF)
    first = pull(empty, remote, REF)
    remove(empty, REF)
    collect(empty, NOW)
    again = pull(empty, remote, REF)
    assert again.fetched_bytes == first.fetched_bytes
    assert verify(empty).ok


def test_one_name_of_two_is_enough(local: Registry, digest: Digest) -> None:
    local.publish(Ref.parse("second"), digest, card=Card())
    remove(local, REF)
    assert collect(local, NOW).collected == ()
    remove(local, Ref.parse("second"))
    assert len(collect(local, NOW).collected) == 1


def test_what_another_host_may_still_be_writing_stays_for_a_day(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    dead = f"{socket.gethostname()}-{2**22 + 1}-abc"
    running = [
        debris(local.root, "staging/elsewhere-1-abc", days=0.9),
        debris(local.root, ".tmp/elsewhere-1-abc", days=0.9),
        debris(local.root, f"incoming/{digest.hex}/pull", days=0.9),
    ]
    mine = debris(local.root, f"staging/{dead}", days=0.1)
    stale = debris(local.root, "staging/elsewhere-2-abc", days=1.1)
    collect(local, NOW)
    assert all(place.exists() for place in running)
    assert not mine.exists()
    assert not stale.exists()


def damage(registry: Registry, ref: Ref) -> str:
    head = registry.head(ref)
    assert head is not None
    key = head.key
    registry.store.put(key, b"{}")
    return key


def test_a_damaged_name_spares_what_it_may_name_and_nothing_else(local: Registry, digest: Digest) -> None:
    assert local.root is not None
    given_up, lost = (write(local.root, pair(seed), parts=("mask", "delta")) for seed in (1, 2))
    other = Ref.parse("other")
    local.publish(other, given_up, card=CARD)
    remove(local, other)
    # Nothing but the entry that is damaged names ``lost``.
    local.publish(REF, lost, card=CARD)
    key = damage(local, REF)
    rehearsed = collect(local, NOW, dry_run=True)
    report = collect(local, NOW)
    assert [gone.digest for gone in report.collected] == [given_up]
    assert [error.key for error in report.damaged] == [error.key for error in rehearsed.damaged] == [key]
    for spared in (digest, lost):
        assert local.store.head(artifact_prefix(spared) + MANIFEST) is not None


def test_a_damaged_step_within_the_grace_period_spares_too(local: Registry, digest: Digest, orphan: Digest) -> None:
    local.publish(REF, orphan, card=CARD)
    remove(local, REF)
    local.store.put(entry_key(REF, 2), b"{}")
    for artifact in (digest, orphan):
        age(local, 30, artifact)
    report = collect(local)
    assert report.collected == ()
    assert [error.key for error in report.damaged] == [entry_key(REF, 2)]


def test_a_name_of_which_nothing_can_be_read_stops_a_collection(local: Registry, digest: Digest) -> None:
    key = damage(local, REF)
    with pytest.raises(CorruptError) as caught:
        collect(local, NOW)
    assert caught.value.key == key
    assert local.root is not None
    assert caught.value.hint.endswith(f"rm {local.root / key}")


def test_a_name_that_is_damaged_meanwhile_stops_a_collection(local: Registry, remote: Registry, digest: Digest) -> None:
    push(local, remote, REF)
    remove(remote, REF)

    class Damages(Steps):
        def put(self, key: str, data: bytes) -> None:
            if key.startswith("doomed/"):
                damage(remote, REF)
            super().put(key, data)

    with pytest.raises(CorruptError):
        collect(Registry(Damages(remote.store), name="lab"), NOW)
    assert list(remote.store.list(artifact_prefix(digest)))
    assert not list(remote.store.list("doomed/"))


def test_a_damaged_name_works_again_after_the_hint(local: Registry, digest: Digest, orphan: Digest) -> None:
    local.publish(REF, orphan, card=CARD)
    damage(local, REF)
    for fails in (
        lambda: local.resolve(REF),
        lambda: remove(local, REF),
        lambda: restore(local, REF),
        lambda: local.publish(REF, orphan, card=CARD),
    ):
        with pytest.raises(DataError) as caught:
            fails()
    subprocess.run(caught.value.hint.partition(": ")[2], shell=True, check=True)
    assert local.resolve(REF).digest == digest
    assert local.publish(REF, orphan, card=CARD).n == 2
