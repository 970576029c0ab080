"""What garbage collection takes, what it leaves alone, and what it says."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import remove, restore
from maskreg.registry.verify import verify
from maskreg.store import FileStore
from tests.registry.conftest import CARD, REF, age
from tests.registry.steps import Steps

NOW = timedelta(0)


def test_only_what_has_no_name_and_is_old_goes(local: Registry, digest: Digest, other: Digest) -> None:
    age(local, 30, digest)
    age(local, 6.9, other)
    assert collect(local).collected == ()
    age(local, 7.1, other)
    size = sum(info.size for info in local.store.list(artifact_prefix(other)))
    count = len(list(local.store.list(artifact_prefix(other))))
    rehearsed = collect(local, dry_run=True)
    assert local.store.head(artifact_prefix(other) + MANIFEST) is not None
    report = collect(local)
    assert report.collected == rehearsed.collected
    assert rehearsed.dry_run
    assert [(g.digest, g.objects, g.bytes) for g in report.collected] == [(other, count, size)]
    assert (report.objects, report.bytes, report.spared) == (count, size, ())
    assert not list(local.store.list(artifact_prefix(other)))
    assert verify(local).ok
    assert collect(local).collected == ()


def test_a_named_artifact_stays_although_no_catalog_knows_it(local: Registry, digest: Digest) -> None:
    assert local.catalog is not None
    local.catalog.drop_artifact(digest)
    assert collect(local, NOW).collected == ()
    assert verify(local, REF).ok


def test_one_object_that_is_young_keeps_the_rest(local: Registry, other: Digest) -> None:
    age(local, 30, other)
    assert isinstance(local.store, FileStore)
    local.store.path(artifact_prefix(other) + "tensors.json").touch()
    assert collect(local).collected == ()


def test_pieces_without_a_manifest_go(local: Registry, other: Digest) -> None:
    local.store.delete([artifact_prefix(other) + MANIFEST])
    assert collect(local).collected == ()
    age(local, 8, other)
    assert [gone.digest for gone in collect(local).collected] == [other]


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


def test_the_grace_period_also_runs_from_the_move(local: Registry, digest: Digest, other: Digest) -> None:
    age(local, 30, digest)
    local.publish(REF, other, card=CARD)
    assert collect(local).collected == ()
    assert [gone.digest for gone in collect(local, NOW).collected] == [digest]


def test_the_catalog_forgets_what_was_collected(local: Registry, digest: Digest) -> None:
    remove(local, REF)
    collect(local, NOW)
    assert local.catalog is not None
    assert not local.catalog.has(digest)
    assert local.search(Query()).results == ()
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
    report = collect(remote, NOW, delete_many=True)
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
