"""Where ``apply`` finds the checkpoint when none is named: the hub cache, after the places seen."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from maskreg.extras import install_command
from tests.cli.conftest import Run
from tests.e2e.running import same_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source as the hub's own library keeps it; its cache directory."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = tmp_path / "hub" / "models--org--toy"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    shutil.copytree(pair[0], model / "snapshots" / COMMIT)
    return model


def test_the_hub_cache_at_the_recorded_commit(
    run: Run, cached: Path, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("extract", "org/toy", pair[1], "--name", "toy", "--json").json
    assert made["manifest"]["source"]["hub"] == f"org/toy@{COMMIT}"
    run("export", "toy", "-o", tmp_path / "toy.maskreg")
    # A machine that has seen no checkpoint at all.
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "elsewhere"))
    run("import", tmp_path / "toy.maskreg")
    run("apply", "toy", "-o", tmp_path / "out")
    assert same_files(tmp_path / "out", pair[1])
    shutil.rmtree(cached)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "third"))
    run("import", tmp_path / "toy.maskreg")
    told = run("apply", "toy", "-o", tmp_path / "never", status=66).err
    assert f"tried: org/toy@{COMMIT} (" in told
    assert f"next: maskreg apply toy -o {tmp_path / 'never'} --download" in told
    told = run("apply", "toy", "--download", "-o", tmp_path / "never", status=66).err
    assert told.count(f"org/toy@{COMMIT} (") == 2
    assert "--source PATH" in told


def test_without_the_hubs_library_what_was_tried_is_listed(
    run: Run, cached: Path, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("extract", "org/toy", pair[1], "--name", "toy")
    run("export", "toy", "-o", tmp_path / "toy.maskreg")
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "elsewhere"))
    run("import", tmp_path / "toy.maskreg")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    told = run("apply", "toy", "-o", tmp_path / "never", status=66).err
    assert f"tried: org/toy@{COMMIT} (" in told
    assert "needs the package huggingface_hub" in told
    assert f"next: {install_command('hub')}" in told
