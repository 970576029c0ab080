"""What a service does by itself: it states that its tags are fresh, and verifies what was uploaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.digest import Digest
from maskreg.errors import UnavailableError, UntrustedError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.service.app import create_app
from maskreg.service.background import Chore, Housekeeper, housekeeper
from maskreg.service.start import Options, Started, open_service, serve
from maskreg.settings import Remote, Settings
from tests.service.labs import Lab
from tests.service.serving import ADMIN, listening, service_in

NEW = {"If-None-Match": "*"}
TAG = "/api/v1/projects/team/refs/opd/v2"


@pytest.fixture
def signing(lab: Lab) -> Lab:
    with open_service(Options(home=str(lab.workspace.root))) as started:
        lab.service.registry.trust.signer = started.registry.trust.signer
        lab.service.registry.trust.fresh_s = started.registry.trust.fresh_s
    answer = lab.client("writer-token").put(TAG, json={"artifact": "team/opd:v1"}, headers=NEW)
    assert answer.status_code == 201, answer.text
    return lab


def ahead(days: float) -> Callable[[], datetime]:
    """A clock that is ahead by so many days."""
    return lambda: datetime.now(UTC) + timedelta(days=days)


def reader(folder: Path, url: str, clock: Callable[[], datetime], monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("MASKREG_TOKEN", "reader-token")
    registry = Registry.remote(Remote("lab", url), Settings(home=folder, config_path=folder / "config.toml"))
    registry.trust.clock = clock
    return registry


def test_a_freeze_is_noticed_by_default(signing: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, ref = signing.service.registry.root, Ref.parse("team/opd:v2")
    assert home is not None
    shutil.copytree(home, tmp_path / "frozen", ignore=shutil.ignore_patterns("service.db*"))
    frozen = service_in(tmp_path / "frozen")
    with listening(signing.app) as url, listening(create_app(frozen)) as frozen_url:
        for days in (0, 3, 6, 9):
            later = signing.service.registry.trust.clock = ahead(days)
            with signing.service.accounts.database.write() as connection:
                connection.exec_driver_sql("UPDATE service_chores SET due = 0")
            housekeeper(signing.service).turn()
            assert reader(tmp_path / f"live-{days}", url, later, monkeypatch).live(ref).n == 1
            old = reader(tmp_path / f"frozen-{days}", frozen_url, later, monkeypatch)
            if days < 7:
                assert old.live(ref).n == 1
            else:
                with pytest.raises(UntrustedError, check=lambda error: "expired" in error.facts):
                    old.live(ref)
    frozen.close()


def test_a_project_that_cannot_be_renewed_keeps_no_other_from_it(signing: Lab) -> None:
    registry = signing.service.registry
    made = signing.client(ADMIN).put("/api/v1/projects/zoo/refs/opd/v1", json={"artifact": "team/opd:v1"}, headers=NEW)
    assert made.status_code == 201, made.text
    (key,) = (info.key for info in registry.store.list("keys/team/") if info.key.endswith("0001.json"))
    registry.store.put(key, b"{}")
    registry.trust.forget()
    registry.trust.clock = ahead(6)
    housekeeper(signing.service).turn("refresh")
    assert registry.trust.log.renewal("zoo") is not None
    assert registry.trust.log.renewal("team") is None


def test_a_server_states_what_is_fresh_before_it_answers(lab: Lab) -> None:
    home = lab.workspace.local.root
    chores = lab.service.accounts.chores

    def ready(started: Started) -> None:
        assert not chores.is_due("refresh")
        assert started.first is not None
        raise KeyboardInterrupt

    assert chores.is_due("refresh")
    with pytest.raises(KeyboardInterrupt):
        serve(Options(port=0, home=str(home), new_admin=True), ready)


def test_a_chore_that_fails_is_tried_again_and_keeps_no_other_from_its_turn(lab: Lab) -> None:
    ran: list[str] = []

    def fail(_: Callable[[], None]) -> None:
        ran.append("fail")
        raise UnavailableError("the store does not answer")

    chores = lab.service.accounts.chores
    table = [Chore("bad", 9999.0, fail), Chore("good", 9999.0, lambda _: ran.append("good"))]
    Housekeeper(chores, table).turn()
    assert ran == ["fail", "good"]
    with lab.service.accounts.database.write() as connection:
        connection.exec_driver_sql("UPDATE service_chores SET due = due - 61")
    Housekeeper(chores, table).turn()
    assert ran == ["fail", "good", "fail"]


@pytest.fixture
def uploaded(lab: Lab) -> TestClient:
    client = lab.client("writer-token")
    answer = client.put(TAG, json={"artifact": "team/opd:v1"}, headers=NEW)
    assert answer.status_code == 201, answer.text
    return client


def artifact(lab: Lab) -> dict[str, object]:
    shown = lab.get(f"/artifacts/{lab.digests['opd']}")
    return {name: shown[name] for name in ("verified", "waits_for_verification")}


def page(lab: Lab) -> str:
    return lab.client("writer-token").get("/p/team/opd:v2?tab=files", headers={"Accept": "text/html"}).text


def test_what_is_uploaded_is_verified_once(lab: Lab, uploaded: TestClient) -> None:
    assert artifact(lab) == {"verified": None, "waits_for_verification": True}
    before = page(lab)
    housekeeper(lab.service).turn()
    check = artifact(lab)["verified"]
    assert isinstance(check, dict)
    assert (check["ok"], check["by"], check["damaged"], check["objects"] > 0) == (True, "maskreg serve", [], True)
    assert not artifact(lab)["waits_for_verification"]
    assert page(lab) != before
    uploaded.put(f"{TAG}b", json={"artifact": "team/opd:v1"}, headers=NEW)
    assert not artifact(lab)["waits_for_verification"]


def test_damage_is_found_and_shown(lab: Lab, uploaded: TestClient) -> None:
    root, digest = lab.workspace.local.root, lab.digests["opd"]
    assert root is not None
    shard = next((root / "artifacts" / "sha256" / digest.hex).rglob("c/*"))
    shard.chmod(0o600)
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    housekeeper(lab.service).turn()
    check = artifact(lab)["verified"]
    assert isinstance(check, dict)
    assert (check["ok"], len(check["damaged"])) == (False, 1)
    assert check["damaged"][0]["key"].endswith(shard.name)
    assert "✗ Damaged" in page(lab)


def test_who_may_write_lets_the_server_verify_again(lab: Lab, uploaded: TestClient) -> None:
    housekeeper(lab.service).turn()
    path = f"/api/v1/artifacts/{lab.digests['opd']}/verify"
    for token, status in (("reader-token", 403), ("stranger-token", 404), ("writer-token", 202), (ADMIN, 202)):
        assert lab.client(token).post(path).status_code == status, token
    for digest, token in ((lab.digests["hidden"], "writer-token"), (Digest.of(b"unknown"), ADMIN)):
        assert lab.client(token).post(f"/api/v1/artifacts/{digest}/verify").status_code == 404
    assert artifact(lab)["waits_for_verification"]
    housekeeper(lab.service).turn()
    events = lab.service.registry.index.must_open().events(action="verify")
    assert [event.detail["requested_by"] for event in events] == ["ada", "ada"]


def test_verifying_a_remote_lets_the_server_verify_too(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(lab.app) as url:
        remotes = {"lab": Remote("lab", url)}
        settings = Settings(home=tmp_path / "ada", config_path=tmp_path / "config.toml", remotes=remotes)
        for token, refs, waits in (
            ("reader-token", ["team/opd:v1"], False),
            ("writer-token", ["team/opd:v1"], True),
            ("writer-token", [], True),
        ):
            while lab.service.accounts.checks.next() is not None:
                housekeeper(lab.service).turn("verify")
            monkeypatch.setenv("MASKREG_TOKEN", token)
            with maskreg.Workspace(settings) as space:
                assert maskreg.verify(*refs, remote="lab", workspace=space).ok
            assert artifact(lab)["waits_for_verification"] is waits
