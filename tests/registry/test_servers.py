"""The same registry on real servers: an S3 bucket, alone and with a PostgreSQL catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotFoundError, TryAgainError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import annotate, remove, restore
from maskreg.registry.verify import verify
from maskreg.settings import Remote, StoreOptions
from tests.buckets import log_in
from tests.registry.conftest import REF
from tests.servers import S3Server


@pytest.fixture(params=["s3_server", "other_s3_server"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Remote:
    server: S3Server = request.getfixturevalue(request.param)
    log_in(server, monkeypatch)
    return Remote("lab", f"s3://{server.new_bucket()}/team", options=StoreOptions(endpoint=server.endpoint))


@pytest.fixture
def lab(bucket: Remote) -> Iterator[Registry]:
    with Registry.remote(bucket) as registry:
        yield registry


def test_one_bucket_alone_is_a_teams_registry(local: Registry, lab: Registry, empty: Registry, digest: Digest) -> None:
    pushed = push(local, lab, REF)
    assert push(local, lab, REF).sent_objects == 0
    pulled = pull(empty, lab, REF)
    assert pulled.fetched_bytes < pushed.sent_bytes
    assert [f.digest for f in lab.search(Query(method="opd")).results] == [digest]
    assert verify(lab).ok
    with pytest.raises(NotFoundError, match="qwen3"):
        lab.resolve(Ref.parse("qwen3"))
    annotate(lab, REF, {"license": "mit"})
    remove(lab, REF)
    with pytest.raises(NotFoundError, check=lambda error: error.facts["removed"] == REF):
        pull(empty, lab, REF)
    restore(lab, REF)
    remove(lab, REF)
    assert collect(lab).collected == ()
    assert [gone.digest for gone in collect(lab, timedelta(0)).collected] == [digest]
    assert [info.key for info in lab.store.list("artifacts/")] == []
    push(local, lab, REF)
    assert verify(lab).ok
    assert lab.artifact(digest).present() == {"mask", "delta", "reverse"}


def test_pushes_and_collections_at_the_same_time(local: Registry, bucket: Remote, digest: Digest) -> None:
    done = threading.Event()
    failures: list[MaskregError] = []

    def collects() -> None:
        with Registry.remote(bucket) as registry:
            while not done.is_set():
                try:
                    collect(registry, timedelta(0), trust_listing=True)
                except MaskregError as error:
                    failures.append(error)

    collector = threading.Thread(target=collects)
    collector.start()
    try:
        with Registry.remote(bucket) as registry:
            for _ in range(3):
                while True:
                    try:
                        push(local, registry, REF)
                        break
                    except TryAgainError:
                        continue
                assert verify(registry, REF).ok
                remove(registry, REF)
    finally:
        done.set()
        collector.join()
    assert failures == []
