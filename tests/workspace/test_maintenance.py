"""Verify, gc, doctor, db, config and remotes: keeping a registry in order."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.native import available, using
from maskreg.workspace.storing import Stored
from tests.checkpoints import flip
from tests.workspace.conftest import Lab


def damage(folder: Path) -> Path:
    """Change one byte of an artifact's mask."""
    (path,) = (folder / "artifacts").rglob("mask/c/0")
    flip(path)
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


def test_doctor_names_the_kernels_in_use(ada: maskreg.Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASKREG_KERNELS", raising=False)
    for name in available():
        with using(name):
            (finding,) = (found for found in maskreg.doctor(workspace=ada) if found.what == "kernels")
        assert (finding.status, finding.detail) == ("ok", name)


def test_findings(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    findings = {finding.what: finding for finding in maskreg.doctor(workspace=ada)}
    names = "version", "kernels", "configuration", "registry", "permissions", "catalog", "disk", "remote team"
    assert tuple(findings) == names
    assert {finding.status for finding in findings.values()} <= {"ok", "note"}
    for folder in (ada.root / "staging", lab.folder / "team/.tmp"):
        (folder / f"{platform.node()}-{2**22 + 1}-abc").write_bytes(b"12345")
    *found, stale = maskreg.doctor(lab.folder, workspace=ada)
    assert [f.error.facts for f in found if f.error] == [{"leftovers": 1, "remote": name} for name in ("", "team")]
    assert (stale.what, stale.status) == ("unfinished work", "ok")
    (manifest,) = (ada.root / "artifacts").rglob("manifest.json")
    manifest.unlink()
    bad = {finding.what: finding for finding in maskreg.doctor(workspace=ada)}["registry"]
    assert (bad.status, next_step(bad.error)) == ("bad", "maskreg pull toy:v1, or maskreg rm -y toy:v1")
    assert bad.detail.startswith("1 ") and "toy:v1" in bad.detail


def test_a_name_of_which_nothing_is_left_is_a_finding(ada: maskreg.Workspace, toy: Stored) -> None:
    assert [row.name for row in maskreg.search(workspace=ada)] == ["toy"]
    for path in (ada.root / "refs").rglob("*.json"):
        path.unlink()
    (finding,) = (entry for entry in maskreg.doctor(workspace=ada) if entry.what == "registry")
    assert finding.status == "bad" and finding.error is not None and finding.error.facts["indexed"]
