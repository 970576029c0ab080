"""Quotas, limits of requests, names that were removed, and the record of who changed something."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import QuotaError, RateLimitedError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.push import push
from maskreg.service.app import create_app
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.background import housekeeper
from maskreg.service.gateway.admission import LIFE
from maskreg.service.middleware import RateLimits, Throttle
from maskreg.settings import Remote, Settings
from tests.checkpoints import make_checkpoint, moved
from tests.service.labs import SOURCE, Lab
from tests.service.serving import ADMIN, ROOT, Switched, headers, server, stated


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    throttle = Throttle(2.0, 3, clock=lambda: now[0])
    for _ in range(3):
        throttle.take("ada")
    with pytest.raises(RateLimitedError) as caught:
        throttle.take("ada")
    assert caught.value.retry_after_s == 1
    throttle.take("bob")
    now[0] = 0.5
    throttle.take("ada")
    with pytest.raises(RateLimitedError):
        throttle.take("ada", 0)
    now[0] = 1000
    for _ in range(3):
        throttle.take("ada")
    with pytest.raises(RateLimitedError):
        throttle.take("ada")


def limited(lab: Lab, **throttles: Throttle) -> TestClient:
    limits = replace(RateLimits.of(1e6), **throttles)
    return TestClient(create_app(replace(lab.service, limits=limits)))


def test_an_account_and_an_address_have_limits_of_their_own(lab: Lab) -> None:
    client = limited(lab, accounts=Throttle(0.1, 2), addresses=Throttle(0.1, 1))
    path = "/api/v1/projects"
    assert [client.get(path, headers=headers("reader-token")).status_code for _ in range(3)] == [200, 200, 429]
    assert client.get(path, headers=headers("writer-token")).status_code == 200
    assert [client.get(path).status_code for _ in range(2)] == [200, 429]
    answer = client.get(path)
    assert (answer.json()["code"], answer.headers["retry-after"]) == ("RATE_LIMITED", "10")
    assert client.get("/livez").status_code == 200


def test_who_tries_tokens_has_to_wait(lab: Lab) -> None:
    client = limited(lab, failures=Throttle(0.1, 3))
    path = "/api/v1/whoami"
    assert [client.get(path, headers=headers(f"wrong-{n}")).status_code for n in range(4)] == [401, 401, 401, 429]
    assert client.post("/sign-in", data={"token": "wrong"}).status_code == 429


def put_tag(lab: Lab, tag: str, artifact: str, token: str = "writer-token") -> tuple[int, str | None]:
    path, new = f"/api/v1/projects/team/refs/{tag}", {"If-None-Match": "*"}
    answer = lab.client(token).put(path, json={"artifact": lab.digests.get(artifact, artifact)}, headers=new)
    return answer.status_code, answer.json().get("code")


def test_a_project_holds_as_much_as_its_quota_says(lab: Lab) -> None:
    lab.service.accounts.projects.change("team", ROOT, max_artifacts=2)
    assert put_tag(lab, "opd/again", "opd")[0] == 201
    assert put_tag(lab, "other/v1", "hidden", ADMIN) == (507, "QUOTA_EXCEEDED")
    lab.service.accounts.projects.change("team", ROOT, max_artifacts=None, max_bytes=1)
    assert put_tag(lab, "other/v1", "hidden", ADMIN) == (507, "QUOTA_EXCEEDED")
    lab.service.accounts.projects.change("team", ROOT, max_bytes=1 << 40)
    assert put_tag(lab, "other/v1", "hidden", ADMIN)[0] == 201


def test_who_changed_something_is_recorded_with_the_token(lab: Lab) -> None:
    token = lab.service.accounts.authenticate("writer-token").token
    put_tag(lab, "opd/v9", "opd")
    put_tag(lab, "opd/v9", "nothing", "reader-token")
    newest = lab.service.accounts.audit("team")[0]
    assert (newest.by, newest.token, newest.action, newest.subject) == ("ada", token, "set tag", "team/opd:v9")
    before = len(lab.service.accounts.audit(limit=1000))
    lab.get("/projects")
    assert len(lab.service.accounts.audit(limit=1000)) == before


__all__ = ["server"]


@pytest.fixture
def local(tmp_path: Path) -> Registry:
    space = maskreg.Workspace(Settings(home=tmp_path / "ada", config_path=tmp_path / "config.toml"))
    source = make_checkpoint(tmp_path / "before", SOURCE)
    for number in range(3):
        target = {key: moved(tensor, 0.5, 50 + number) for key, tensor in SOURCE.items()}
        after = make_checkpoint(tmp_path / f"after-{number}", target)
        maskreg.extract(source, after, f"team/new:v{number}", workspace=space)
    return space.local


def announce(lab: Lab, local: Registry, number: int, token: str = "writer-token") -> tuple[int, Digest, int]:
    digest = local.resolve(Ref("team", "new", f"v{number}")).digest
    data, manifest = read_manifest(local.store, digest)
    key = f"/api/v1/objects/announced/sha256/{digest.hex}/manifest.json"
    return lab.client(token).put(key, content=data, headers=stated(data)).status_code, digest, manifest.size + len(data)


def on_their_way(lab: Lab) -> set[tuple[str, int]]:
    keys = (info.key.split("/") for info in lab.workspace.local.store.list("sent/"))
    return {(key[2], int(key[3].removeprefix("size-"))) for key in keys if key[3].startswith("size-")}


def used(lab: Lab) -> int:
    return sum(result.size for result in lab.workspace.local.index.must_open().search() if result.project == "team")


def test_what_a_sender_has_on_its_way_counts_in_the_quota(lab: Lab, local: Registry) -> None:
    status, digest, size = announce(lab, local, 0)
    assert (status, on_their_way(lab)) == (201, {(digest.hex, size)})
    assert announce(lab, local, 0)[0] == 201  # a push that is resumed
    lab.service.accounts.projects.change("team", ROOT, max_bytes=used(lab) + size)
    status, second, _ = announce(lab, local, 1)
    assert (status, on_their_way(lab)) == (507, {(digest.hex, size)})
    assert not list(lab.workspace.local.store.list(f"announced/sha256/{second.hex}/"))
    lab.service.accounts.projects.change("team", ROOT, max_bytes=None, max_artifacts=3)
    assert announce(lab, local, 1)[0] == 507
    assert announce(lab, local, 0)[0] == 201
    # What the server's admin sends is counted when it gets its name.
    assert announce(lab, local, 1, "admin-token")[0] == 201


def test_an_artifact_can_be_sent_where_some_project_has_room(lab: Lab, local: Registry) -> None:
    lab.service.accounts.members.grant("zoo", "ada", Role.WRITER, ROOT)
    ada = lab.service.accounts.authenticate("writer-token")
    token = lab.service.accounts.tokens.create("ada", Scope("*", Role.WRITER), ada).token
    lab.service.accounts.projects.change("team", ROOT, max_bytes=1)
    status, digest, size = announce(lab, local, 0, token)
    assert (status, on_their_way(lab)) == (201, {(digest.hex, size)})
    lab.service.accounts.projects.change("zoo", ROOT, max_bytes=1)
    assert announce(lab, local, 1, token)[0] == 507


def test_what_has_a_name_is_not_on_its_way(
    lab: Lab, local: Registry, server: Switched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKREG_TOKEN", "writer-token")
    first = local.resolve(Ref("team", "new", "v0")).digest
    size = announce(lab, local, 0)[2]
    lab.service.accounts.projects.change("team", ROOT, max_bytes=used(lab) + size)
    with server.serving(lab.service):
        remote = Registry.remote(Remote("lab", server.url), Settings(home=tmp_path / "ada", config_path=tmp_path / "c"))
        push(local, remote, Ref("team", "new", "v0"))
        assert remote.resolve(Ref("team", "new", "v0")).digest == first
        assert lab.service.accounts.checks.is_pending(first)
        assert on_their_way(lab) == set()
        with pytest.raises(QuotaError, match=" team "):
            push(local, remote, Ref("team", "new", "v1"))
        second = local.resolve(Ref("team", "new", "v1")).digest
        assert not list(lab.workspace.local.store.list(f"artifacts/sha256/{second.hex}/"))


def test_what_gets_no_name_is_deleted_after_a_week(lab: Lab, local: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = lab.workspace.local.store, lab.workspace.local.store.clock
    digest = announce(lab, local, 0)[1]
    prefix = f"artifacts/sha256/{digest.hex}/"
    for info in local.store.list(prefix):
        if not info.key.endswith("manifest.json"):
            store.put(info.key, local.store.get(info.key, max_bytes=1 << 30))
    named = {info.key for info in store.list("artifacts/") if not info.key.startswith(prefix)}
    for days, is_there in ((0.0, True), (6.9, True), (7.1, False)):
        with lab.service.accounts.database.write() as connection:
            connection.exec_driver_sql("UPDATE service_chores SET due = due - 3600")
        monkeypatch.setattr(type(store), "clock", lambda self, days=days: clock() + timedelta(days=days))
        housekeeper(lab.service).turn("tidy")
        for where in (prefix, "announced/", "sent/"):
            assert bool(list(store.list(where))) is is_there, (days, where)
    assert {info.key for info in store.list("artifacts/")} == named
    assert timedelta(days=7) == LIFE
