"""What commands leave behind them, damage, and where the source of an artifact is."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.e2e.running import MASKREG, same_files

REF = "toy-opd:v1"


def test_the_manifest_is_what_the_digest_names(artifact: str) -> None:
    done = subprocess.run([MASKREG, "show", REF, "--manifest"], capture_output=True, check=True)
    assert "sha256:" + hashlib.sha256(done.stdout).hexdigest() == artifact


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
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", "toy")
    # A machine that has seen no checkpoint.
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "elsewhere"))
    run("pull", "toy")
    run("apply", "toy", "-o", tmp_path / "out")
    assert same_files(tmp_path / "out", pair[1])
    shutil.rmtree(cached)
    told = run("apply", "toy", "-o", tmp_path / "never", status=66).err
    assert f"next: maskreg apply toy -o {tmp_path / 'never'} --download" in told
    told = run("apply", "toy", "--download", "-o", tmp_path / "never", status=66).err
    assert "--source CKPT" in told
