"""A home that can only be read, and an artifact that cannot: messages, and what still works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.artifact.layout import artifact_prefix
from maskreg.settings import Remote
from maskreg.workspace.storing import Stored
from maskreg.workspace.verbs import db
from tests.people import not_root
from tests.workspace.conftest import Lab


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder open to all users, unlike pytest's."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def opened_up(folder: Path, *, files: int, folders: int) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(folders if path.is_dir() else files)


def test_a_home_that_may_only_be_read(lab: Lab, ada: maskreg.Workspace, toy: Stored, public: Path) -> None:
    home = public / "home"
    ada.close()
    shutil.copytree(ada.settings.home, home, ignore=shutil.ignore_patterns("staging"))
    for name in ("source", "target"):
        shutil.copytree(lab.folder / name, public / name)
    opened_up(public, files=0o644, folders=0o755)
    opened_up(home, files=0o444, folders=0o555)
    settings = maskreg.Settings(home=home, config_path=public / "config.toml")
    with not_root(), maskreg.Workspace(settings) as workspace:
        (finding,) = (row for row in maskreg.doctor(workspace=workspace) if row.what == "registry")
        assert (finding.status, next_step(finding.error)) == ("note", f"ls -ld {home}")
        assert [entry.digest for entry in maskreg.list(workspace=workspace)] == [toy.digest]
        with pytest.raises(maskreg.NotAllowedError) as caught:
            db.rebuild(workspace=workspace)
        assert caught.value.hint == f"ls -ld {home}"
        with pytest.raises(maskreg.MaskregError) as refused:
            maskreg.extract(public / "source", public / "target", "toy:v2", workspace=workspace)
        assert refused.value.hint == f"ls -ld {home}"
    assert not (home / "staging").exists()
    opened_up(home, files=0o644, folders=0o755)


def test_an_artifact_that_may_not_be_read_is_left_out(
    lab: Lab, ada: maskreg.Workspace, toy: Stored, public: Path
) -> None:
    second = maskreg.extract(lab.target, lab.source, "second:v1", workspace=ada)
    for name in (toy, second):
        maskreg.push(name, workspace=ada)
    shutil.copytree(lab.folder / "team", public / "team")
    opened_up(public, files=0o644, folders=0o755)
    folder = public / "team" / artifact_prefix(toy.digest)
    folder.chmod(0)
    settings = maskreg.Settings(
        home=public / "home", config_path=public / "config.toml", remotes={"team": Remote("team", str(public / "team"))}
    )
    public.chmod(0o777)
    with not_root(), maskreg.Workspace(settings) as workspace:
        names = maskreg.list(remote="team", workspace=workspace)
        assert [entry.digest for entry in names] == [second.digest]
        (left_out,) = names.left_out
        assert (left_out.ref, next_step(left_out.error)) == ("toy:v1", f"ls -ld {folder}")
        assert "Permission denied" in left_out.reason
    folder.chmod(0o755)
