"""Where a checkpoint is looked for when none is given."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import maskreg
from maskreg.artifact.manifest import Side
from maskreg.errors import OutputExistsError
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import Stored
from tests.people import not_root
from tests.workspace.conftest import Lab


def test_where_it_was_seen_last(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    assert maskreg.apply(toy, out=lab.folder / "out", workspace=ada).source == lab.source
    lab.source.rename(lab.folder / "elsewhere")
    with pytest.raises(maskreg.NotFoundError, match=f": {lab.source}$") as caught:
        maskreg.apply(toy, out=lab.folder / "never", workspace=ada)
    assert caught.value.facts["options"] == {"source": None}
    assert maskreg.apply(toy, lab.folder / "elsewhere", lab.folder / "again", workspace=ada).tensors == 3


def test_a_path_that_holds_another_checkpoint_is_skipped(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    copy = lab.folder / "copy"
    shutil.copytree(lab.source, copy)
    maskreg.apply(toy, copy, lab.folder / "one", workspace=ada)
    maskreg.apply(toy, lab.source, lab.folder / "two", workspace=ada)
    shutil.copytree(lab.target, lab.source, dirs_exist_ok=True)
    assert maskreg.apply(toy, out=lab.folder / "three", workspace=ada).source == copy
    shutil.rmtree(copy)
    notes: list[str] = []
    ada.note = lambda said: notes.append(str(said))
    maskreg.baseline(toy, "random-global", name="drawn", workspace=ada)
    maskreg.compare(toy, "drawn", workspace=ada)
    assert [f"gone: {copy}" in note and f"{lab.source} (" in note for note in notes] == [True]


def test_a_checkpoint_that_may_not_be_read_is_listed() -> None:
    side = Side(root=str(maskreg.Digest.of(b"root")), params=1, tensors=1, dtypes={"BF16": 1})
    with TemporaryDirectory() as folder:
        settings = maskreg.Settings(home=Path(folder) / "home", config_path=Path(folder) / "config.toml")
        locked = Path(folder) / "checkpoint"
        locked.mkdir(mode=0)
        Path(folder).chmod(0o755)
        with maskreg.Workspace(settings) as workspace:
            workspace.local.index.saw_source(side.root, str(locked))
            workspace.local.index.saw_source(side.root, str(locked / "deeper"))
            workspace.local.index.close()
            # The home is its owner's alone, and this process has another user now.
            settings.home.chmod(0o777)
            (settings.home / "catalog.db").chmod(0o666)
            with not_root(), pytest.raises(maskreg.NotFoundError) as caught:
                next(sources(workspace, side))
    assert f"tried: {locked / 'deeper'} (Permission denied); {locked} (" in caught.value.message
    assert caught.value.facts["options"] == {"source": None}


def test_the_current_directory_is_not_replaced(
    lab: Lab, ada: maskreg.Workspace, toy: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = lab.folder / "out"
    maskreg.apply(toy, lab.source, out, workspace=ada)
    before = sorted(path.name for path in out.iterdir())
    monkeypatch.chdir(out)
    for force in (False, True):
        with pytest.raises(OutputExistsError) as refused:
            maskreg.apply(toy, lab.source, ".", force=force, workspace=ada)
        assert "options" not in refused.value.facts
    assert sorted(path.name for path in out.iterdir()) == before
