"""What the service lets clients do with the objects of its store, and what it refuses however it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.registry import Registry, tags
from maskreg.store.entry import RefEntry
from tests.service.labs import Lab
from tests.service.serving import ADMIN, headers, stated

OBJECTS = "/api/v1/objects"
MINE, THEIRS = Ref("team", "opd", "v1"), Ref("elsewhere", "secret", "v1")


@dataclass(frozen=True)
class Served:
    """A server with an artifact in each of two projects, and what it serves."""

    client: TestClient
    registry: Registry

    def send(
        self, method: str, key: str, token: str, data: bytes = b"", also: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        sent = {**headers(token), **(stated(data) if method == "PUT" else {}), **(also or {})}
        return self.client.request(method, f"{OBJECTS}/{quote(key)}", headers=sent, content=data)

    def keys(self, prefix: str, token: str) -> list[str]:
        answer = self.client.get(OBJECTS, params={"prefix": prefix}, headers=headers(token))
        *rows, end = [json.loads(line) for line in answer.text.splitlines()]
        assert end == {"end": True, "count": len(rows)}
        return [row["key"] for row in rows]

    def digest(self, ref: Ref) -> Digest:
        return self.registry.resolve(ref).digest

    def shard(self, ref: Ref) -> str:
        prefix = artifact_prefix(self.digest(ref))
        return next(info.key for info in self.registry.store.list(prefix) if "/c/" in info.key)

    def next_entry(self, ref: Ref, **changed: object) -> RefEntry:
        head = self.registry.refs.head(ref)
        assert head is not None
        values = {"n": head.n + 1, "previous": head.id, "by": "ada", "write_id": "0" * 32, **changed}
        return replace(head, **values)  # type: ignore[arg-type]


@pytest.fixture
def served(lab: Lab) -> Served:
    maskreg.tag("secret/hidden", THEIRS, workspace=lab.workspace)
    return Served(lab.client(""), lab.service.registry)


def test_an_object_is_read_by_readers_of_a_project_that_names_it_alone(served: Served) -> None:
    mine, theirs = served.shard(MINE), served.shard(THEIRS)
    for token, status in (("reader-token", 200), ("stranger-token", 404), (ADMIN, 200), ("", 401)):
        assert served.send("GET", mine, token).status_code == status
    assert [served.send("GET", theirs, token).status_code for token in ("writer-token", "stranger-token")] == [404, 200]
    assert served.send("HEAD", theirs, "writer-token").status_code == 404
    assert served.keys(artifact_prefix(served.digest(THEIRS)), "writer-token") == []


def test_listings_leave_out_what_a_reader_cannot_see(served: Served) -> None:
    for prefix, part in (("refs/", "/secret/"), ("artifacts/sha256/", served.digest(THEIRS).hex)):
        everything, mine = served.keys(prefix, ADMIN), served.keys(prefix, "reader-token")
        assert any(part in key for key in everything)
        assert mine == [key for key in everything if part not in key]
        assert mine
    assert len(served.keys("names/sha256/", "reader-token")) == 2
    assert served.keys("", "reader-token") == []


@pytest.mark.parametrize(
    "key",
    [
        *("service.db", "catalog.db", "catalog.db-wal", "seen/x", "config.toml", ".private/x.pem", "a.lock"),
        # There are file systems on which it is the same file.
        *("SERVICE.DB", "service.DB-wal", "Staging/x", "SEEN/x", "Config.TOML", "a.PEM", ".Private/x"),
    ],
)
def test_what_the_server_keeps_to_itself_is_no_object(served: Served, key: str) -> None:
    assert served.send("GET", key, ADMIN).status_code in (404, 422)
    assert served.send("PUT", key, ADMIN, b"x").status_code in (403, 422)
    assert not (Path(served.registry.root or "") / key).exists() or key in ("service.db", "catalog.db")
    assert not [key for key in served.keys("", ADMIN) if ".db" in key]


def test_no_client_poisons_a_digest(served: Served) -> None:
    key, prefix = served.shard(MINE), artifact_prefix(served.digest(MINE))
    before = served.registry.store.get(key, max_bytes=1 << 20)
    for token in ("writer-token", "stranger-token", ADMIN):
        assert served.send("PUT", key, token, before[:-1] + b"?").status_code == 422
        assert served.send("PUT", prefix + MANIFEST, token, b"{}").status_code == 422
        assert served.send("PUT", prefix + "files/new.json", token, b"{}").status_code == 422
    assert served.registry.store.get(key, max_bytes=1 << 20) == before


def test_an_upload_that_is_not_what_it_states_leaves_nothing(served: Served) -> None:
    digest = served.digest(MINE)
    data, _ = read_manifest(served.registry.store, digest)
    key = f"announced/sha256/{digest.hex}/{MANIFEST}"
    assert served.send("PUT", key, "writer-token", data, stated(b"other")).json()["code"] == "DIGEST_MISMATCH"
    assert served.send("PUT", key, "writer-token", data, {"Repr-Digest": "md5=:AAAA:"}).status_code == 422
    assert served.send("PUT", key, "writer-token", bytes(5 << 20)).status_code == 413
    none = f"announced/sha256/{Digest.of(b'x').hex}/{MANIFEST}"
    assert served.send("PUT", none, "writer-token", b"x").status_code == 422
    assert not list(served.registry.store.list("announced/"))


def test_an_entry_follows_the_rules_of_the_log_or_is_not_written(served: Served) -> None:
    good = served.next_entry(MINE, card=replace(served.next_entry(MINE).card, family="other"))
    for wrong, status in (
        (replace(good, by="bob"), 422),
        (replace(good, n=good.n + 1), 409),
        (replace(good, previous=Digest.of(b"another")), 422),
        (replace(good, digest=Digest.of(b"absent")), 404),
        (replace(good, digest=served.digest(THEIRS)), 404),
        (replace(good, at=good.at - timedelta(hours=3)), 422),
        (replace(good, digest=None, deleted=True, removed=good.digest), 403),
    ):
        sent = served.send("PUT", wrong.key, "writer-token", wrong.to_bytes(), {"If-None-Match": "*"})
        assert sent.status_code == status, sent.text
    assert served.send("PUT", good.key, "reader-token", good.to_bytes()).status_code == 403
    assert served.send("PUT", good.key, "stranger-token", good.to_bytes()).status_code == 404
    foreign = replace(good, project="elsewhere")
    assert served.send("PUT", good.key, "writer-token", foreign.to_bytes()).status_code == 422
    first = served.send("PUT", good.key, "writer-token", good.to_bytes(), {"If-None-Match": "*"})
    second = served.send("PUT", good.key, "writer-token", good.to_bytes())
    assert (first.status_code, second.status_code) == (201, 412)
    assert served.registry.live(MINE).card.family == "other"
    assert [event.action for event in served.registry.index.must_open().events(action="annotate")] == ["annotate"]


def test_a_removed_name_is_a_tombstone(served: Served) -> None:
    head = served.next_entry(MINE)
    first = replace(head, tag="second", n=1, previous=None)
    tags.remove(served.registry, MINE)
    refused = served.send("PUT", first.key, "writer-token", first.to_bytes(), {"If-None-Match": "*"})
    assert (refused.status_code, refused.json()["code"]) == (403, "DENIED")
    for entry, token in ((replace(first, name="fresh"), "writer-token"), (replace(first, by="root"), ADMIN)):
        assert served.send("PUT", entry.key, token, entry.to_bytes(), {"If-None-Match": "*"}).status_code == 201


def test_an_entry_is_never_replaced_or_deleted(served: Served) -> None:
    head = served.registry.live(MINE)
    assert served.send("DELETE", head.key, ADMIN).status_code == 403
    assert served.send("PUT", head.key, ADMIN, replace(head, by="root").to_bytes()).status_code == 412
    assert served.registry.live(MINE) == head


def test_ranges_and_tags_of_content(served: Served) -> None:
    key = served.shard(MINE)
    whole = served.send("GET", key, "reader-token")
    data, tag = whole.content, whole.headers["etag"]
    assert tag == f'"{Digest.of(data)}"'
    assert "immutable" in whole.headers["cache-control"]
    part = served.send("GET", key, "reader-token", b"", {"Range": "bytes=3-9"})
    assert (part.status_code, part.content) == (206, data[3:10])
    assert part.headers["content-range"] == f"bytes 3-9/{len(data)}"
    assert served.send("GET", key, "reader-token", b"", {"Range": "bytes=-4"}).content == data[-4:]
    assert served.send("GET", key, "reader-token", b"", {"Range": f"bytes={len(data)}-"}).status_code == 416
    assert served.send("GET", key, "reader-token", b"", {"If-None-Match": tag}).status_code == 304
    changed = {"If-Range": '"sha256:other"', "Range": "bytes=0-0"}
    assert served.send("GET", key, "reader-token", b"", changed).content == data
    entry = served.registry.live(MINE)
    assert served.send("GET", entry.key, "reader-token", b"", {"Range": "bytes=0-0"}).content == entry.to_bytes()[:1]
