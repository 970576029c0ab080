"""Names: what they mean, how they move, and that everything works from the store alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.document import canonical
from maskreg.errors import ConfigError, CorruptError, DataError, FormatError, NotFoundError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry, who
from maskreg.registry.collect import collect
from maskreg.registry.identity import IDENTITY
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import annotate, remove, restore, tag
from maskreg.registry.verify import verify
from maskreg.store import FileStore
from tests.registry.conftest import CARD, REF, new_local
from tests.store.memory import MemoryStore

# Identity


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with new_local(tmp_path / "nothing") as registry:
        assert registry.uuid == ""
        with pytest.raises(NotFoundError):
            registry.resolve(REF)
        with pytest.raises(NotFoundError):
            registry.history(REF)
        assert verify(registry).artifacts == 0
        assert collect(registry).collected == ()
        assert registry.search(Query()).results == ()
        assert list(registry.store.list("refs/")) == []
        assert registry.store.head(IDENTITY) is None


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"schema": "maskreg.registry/2", "uuid": "12345678-1234-1234-1234-123456789abc"}, ConfigError),
        ({"schema": "maskreg.registry/0", "uuid": "12345678-1234-1234-1234-123456789abc"}, FormatError),
        ({"schema": "other/1", "uuid": "12345678-1234-1234-1234-123456789abc"}, FormatError),
        ({"schema": "maskreg.registry/1", "uuid": "no"}, FormatError),
        ({"schema": "maskreg.registry/1", "uuid": 3}, FormatError),
        ({"schema": "maskreg.registry/1"}, FormatError),
        ({}, FormatError),
        ([], FormatError),
    ],
)
def test_a_registry_of_an_unknown_format_is_not_touched(
    document: object, error: type[Exception], local: Registry, digest: Digest
) -> None:
    store = MemoryStore()
    store.put(IDENTITY, canonical(document))
    for work in (
        lambda r: r.resolve(REF),
        lambda r: r.search(Query()),
        lambda r: collect(r),
        lambda r: r.history(REF),
        lambda r: r.publish(REF, digest, card=CARD),
        lambda r: push(local, r, REF),
    ):
        with pytest.raises(error):
            work(Registry(store, name="lab"))
    assert [info.key for info in store.list("")] == [IDENTITY]


# Names


def test_what_a_name_means(local: Registry, digest: Digest) -> None:
    resolved = local.resolve(REF)
    assert (resolved.digest, resolved.card) == (digest, CARD)
    pinned = local.resolve(replace(REF, digest=digest))
    assert pinned.entry == resolved.entry
    elsewhere = local.resolve(Ref.parse(f"other@{digest}"))
    assert (elsewhere.digest, elsewhere.entry, elsewhere.card) == (digest, None, Card())
    with pytest.raises(NotFoundError, match="sha256:000000000000"):
        local.resolve(Ref.parse("other@sha256:" + "0" * 64))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("team/qwen3-8b-odp", "team/qwen3-8b-opd"),
        ("qwen3-8b-opd", "team/qwen3-8b-opd"),
        ("team/qwen3-8b-opd:v9", "team/qwen3-8b-opd, team/qwen3-8b-opd:v1"),
    ],
)
def test_near_names_are_suggested(local: Registry, digest: Digest, asked: str, meant: str) -> None:
    if "v9" in asked:
        tag(local, REF, REF.with_tag("v1"))
    with pytest.raises(NotFoundError) as caught:
        local.resolve(Ref.parse(asked))
    assert str(caught.value).endswith(f": {meant}")
    assert next_step(caught.value) == "maskreg list qwen3-8b-opd"
    with pytest.raises(NotFoundError) as caught:
        local.resolve(Ref.parse("completely-different"))
    assert "similar" not in caught.value.facts
    assert next_step(caught.value) == "maskreg list"


def test_one_artifact_under_two_names(local: Registry, digest: Digest, other: Digest) -> None:
    v1 = REF.with_tag("v1")
    entry = tag(local, REF, v1)
    assert (entry.digest, entry.card) == (digest, CARD)
    local.publish(REF, other, card=Card())
    assert local.resolve(v1).digest == digest
    tag(local, REF, v1)
    assert local.resolve(v1).digest == other
    assert [e.digest for e in local.history(v1)] == [digest, other]


def test_a_removed_name_comes_back(local: Registry, digest: Digest, other: Digest) -> None:
    with pytest.raises(NotFoundError):
        remove(local, replace(REF, digest=other))
    assert remove(local, replace(REF, digest=digest)).deleted
    with pytest.raises(NotFoundError, match=r" ada@here .* 20\d\d-\d\d-\d\d ") as caught:
        local.resolve(REF)
    assert next_step(caught.value) == f"maskreg restore {REF}"
    changes = (
        remove,
        lambda registry, ref: annotate(registry, ref, {}),
        lambda registry, ref: tag(registry, ref, REF.with_tag("x")),
    )
    for change in changes:
        with pytest.raises(NotFoundError):
            change(local, REF)
    assert local.resolve(replace(REF, digest=digest)).digest == digest
    restore(local, REF)
    assert (local.resolve(REF).digest, local.resolve(REF).card) == (digest, CARD)
    assert [e.deleted for e in local.history(REF)] == [False, True, False]
    with pytest.raises(UsageError):
        restore(local, REF)
    with pytest.raises(NotFoundError):
        restore(local, Ref.parse("never"))


def test_only_what_is_whole_gets_a_name(local: Registry, digest: Digest) -> None:
    name = Ref.parse("other")
    with pytest.raises(NotFoundError):
        local.publish(name, Digest("sha256:" + "0" * 64), card=Card())
    prefix = artifact_prefix(digest)
    damages = {
        "files/config.json": (b"longer than before", CorruptError),
        "data.zarr/mask/zarr.json": (None, CorruptError),
        "tensors.json": (None, CorruptError),
        MANIFEST: (b"{}", DataError),
    }
    for key, (data, error) in damages.items():
        before = local.store.get(prefix + key, max_bytes=1 << 30)
        local.store.delete([prefix + key])
        if data is not None:
            local.store.put(prefix + key, data)
        with pytest.raises(error):
            local.publish(name, digest, card=Card())
        local.store.put(prefix + key, before)
    assert local.refs.head(name) is None
    local.publish(name, digest, card=Card())


def test_a_user_of_any_name_can_write(local: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "a\u200bd\na" * 100)
    local.by = who()
    assert local.by == ("a?d?a" * 100)[:200]
    assert local.publish(Ref.parse("named"), digest, card=CARD).by == local.by


# The catalog


def test_a_bucket_alone_can_be_searched(local: Registry, digest: Digest, remote: Registry) -> None:
    push(local, remote, REF)
    assert remote.index.open() is None
    assert remote.index.problem is None
    found = remote.search(Query(family="qwen3-8b")).results
    assert [(f.project, f.name, f.tag, f.digest) for f in found] == [("team", "qwen3-8b-opd", "latest", digest)]
    with pytest.raises(UsageError):
        remote.search(Query(sort="nonsense"))


def test_what_was_done_is_logged(local: Registry, digest: Digest, remote: Registry, empty: Registry) -> None:
    push(local, remote, REF)
    pull(empty, remote, REF)
    (event,) = empty.index.must_open().events()
    assert (event.action, event.subject, event.by) == ("pull", str(REF), "bob@there")
    annotate(local, REF, {"family": "x"})
    remove(local, REF)
    assert [e.action for e in local.index.must_open().events()] == ["remove", "annotate", "publish"]


# Opening


def test_pushing_goes_on_while_a_catalog_is_down(local: Registry, digest: Digest, tmp_path: Path) -> None:
    # A PostgreSQL that does not answer does not keep users from pushing.
    url = "postgresql+psycopg://user@127.0.0.1:1/none"
    with Registry(FileStore(tmp_path / "s"), name="lab", catalog_url=url) as registry:
        push(local, registry, REF)
        assert registry.index.open() is None
        assert registry.index.problem is not None
        assert [f.digest for f in registry.search(Query()).results] == [digest]
