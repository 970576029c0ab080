"""Verify, gc, doctor, db, config and remotes: keeping a registry in order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.extras import compile_hint
from maskreg.native import NUMPY, available, using
from maskreg.workspace.storing import Stored
from tests.workspace.conftest import Lab


def damage(folder: Path) -> Path:
    """Change one byte of an artifact's mask."""
    (path,) = (folder / "artifacts").rglob("mask/c/0")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


def test_damage_is_reported_and_not_raised(ada: maskreg.Workspace, toy: Stored) -> None:
    sound = maskreg.verify(workspace=ada)
    assert (sound.ok, sound.artifacts, sound.bytes) == (True, 1, toy.size)
    path = damage(ada.root)
    for artifacts in ((), ("toy:v1",), (toy.digest,), ("toy:v1", toy.digest)):
        report = maskreg.verify(*artifacts, workspace=ada)
        (found,) = report.damaged
        assert (report.ok, found.digest, found.names) == (False, toy.digest, ("toy:v1",))
        assert str(path).endswith(found.key)


def test_what_no_name_points_to_is_deleted(ada: maskreg.Workspace, toy: Stored) -> None:
    assert maskreg.gc(timedelta(0), workspace=ada).collected == ()
    maskreg.remove("toy:v1", workspace=ada)
    planned = maskreg.gc(timedelta(0), dry_run=True, workspace=ada)
    assert [entry.digest for entry in planned.collected] == [toy.digest]
    assert maskreg.load(toy.digest, workspace=ada).digest == toy.digest
    assert maskreg.gc(workspace=ada).collected == ()  # younger than the grace period
    done = maskreg.gc(timedelta(0), workspace=ada)
    assert (done.collected, done.bytes) == (planned.collected, planned.bytes)
    with pytest.raises(maskreg.NotFoundError):
        maskreg.load(toy.digest, workspace=ada)


def test_doctor_names_the_kernels_in_use(ada: maskreg.Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASKREG_KERNELS", raising=False)
    for name in available():
        with using(name):
            (finding,) = (found for found in maskreg.doctor(workspace=ada) if found.what == "kernels")
        if name == NUMPY:
            assert (finding.status, next_step(finding.error)) == ("note", compile_hint())
        else:
            assert (finding.status, finding.detail) == ("ok", name)


def test_findings(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    findings = {finding.what: finding for finding in maskreg.doctor(workspace=ada)}
    assert list(findings) == [
        *("version", "kernels", "configuration", "registry", "permissions", "catalog", "disk", "remote team")
    ]
    assert {finding.status for finding in findings.values()} <= {"ok", "note"}
    stale = maskreg.doctor(lab.folder, workspace=ada)[-1]
    assert (stale.what, stale.status) == ("unfinished work", "ok")
    (manifest,) = (ada.root / "artifacts").rglob("manifest.json")
    manifest.unlink()
    bad = {finding.what: finding for finding in maskreg.doctor(workspace=ada)}["registry"]
    assert (bad.status, next_step(bad.error)) == ("bad", "maskreg pull toy:v1, or maskreg rm -y toy:v1")
    assert bad.detail.startswith("1 name without an artifact: toy:v1")


def test_settings_that_are_gone_are_told_from_none(ada: maskreg.Workspace) -> None:
    def detail() -> str:
        return {finding.what: finding.detail for finding in maskreg.doctor(workspace=ada)}["configuration"]

    path = ada.settings.config_path
    path.write_text("jobs = 2\n")
    assert detail() == str(path)
    path.write_text("")
    assert detail() == f"{path}, is empty"
    path.unlink()
    assert detail() == f"{path}, does not exist"


def test_a_name_of_which_nothing_is_left_is_a_finding(ada: maskreg.Workspace, toy: Stored) -> None:
    assert [row.name for row in maskreg.search(workspace=ada)] == ["toy"]
    for path in (ada.root / "refs").rglob("*.json"):
        path.unlink()
    (finding,) = (entry for entry in maskreg.doctor(workspace=ada) if entry.what == "registry")
    assert (finding.status, next_step(finding.error)) == (
        "bad",
        "restore it from a copy; or accept the loss: maskreg db rebuild",
    )
    assert "entry 1 of toy:v1 is in the catalog, and is missing from the store" in finding.detail


def test_the_catalog_comes_back_from_the_store(ada: maskreg.Workspace, toy: Stored) -> None:
    assert maskreg.db.check(workspace=ada).usable
    rebuilt = maskreg.db.rebuild(workspace=ada)
    assert (rebuilt.refs, rebuilt.artifacts, rebuilt.damaged) == (1, 1, ())
    revision = maskreg.db.current(workspace=ada).revision
    upgraded = maskreg.db.upgrade(workspace=ada)
    assert (upgraded.before, upgraded.after) == (revision, revision)
    with pytest.raises(maskreg.ConfigError, match="team has no catalog") as caught:
        maskreg.db.check("team", workspace=ada)
    assert next_step(caught.value).startswith("maskreg config set remotes.team.catalog ")


def test_settings_are_written_and_read_again(lab: Lab, ada: maskreg.Workspace) -> None:
    written = maskreg.config.set("default_remote", "team", workspace=ada)
    assert written.path == maskreg.config.path(workspace=ada) == lab.folder / "ada" / "config.toml"
    assert 'default_remote = "team"' in written.path.read_text()
    assert maskreg.config.get("default_remote", workspace=ada).value == "team"
    assert maskreg.config.unset("default_remote", workspace=ada).value is None
    keys = [setting.key for setting in maskreg.config.show(workspace=ada)]
    assert {"home", "jobs", "offline", "remotes.team.url"} <= set(keys)
    with pytest.raises(maskreg.NotFoundError, match="'nothing' is not set"):
        maskreg.config.get("nothing", workspace=ada)
    with pytest.raises(maskreg.ConfigError):
        maskreg.config.set("jobs", 1000, workspace=ada)


def test_remotes_come_and_go(lab: Lab, ada: maskreg.Workspace) -> None:
    added = maskreg.remotes.add("second", lab.folder / "second", default=True, workspace=ada)
    assert (added.url, added.create_only) == (str(lab.folder / "second"), "safe")
    assert [(r.name, r.default) for r in maskreg.remotes.list(workspace=ada)] == [("team", False), ("second", True)]
    maskreg.remotes.set_default("team", workspace=ada)
    checked = maskreg.remotes.check(workspace=ada)
    assert (checked.name, checked.create_only, checked.reason, checked.keeps_tags) == ("team", "safe", "", True)
    with pytest.raises(maskreg.ConfigError, match="already a remote called 'team'"):
        maskreg.remotes.add("team", lab.folder / "third", workspace=ada)
    assert ada.remote().name == "team"
    maskreg.remotes.remove("team", workspace=ada)
    assert [r.name for r in maskreg.remotes.list(workspace=ada)] == ["second"]
    with pytest.raises(maskreg.ConfigError):
        ada.remote("team")
    assert ada.remote().name == "second"
