"""Where ``apply`` finds the checkpoint when nobody names one: the hub cache, after the places seen."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from maskreg_cli.sources import apply_to_first

from maskreg.artifact.manifest import Side
from maskreg.catalog import open_catalog
from maskreg.checkpoint import Checkpoint
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.flow.apply.on_disk import ApplyResult
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
    assert "next: pip install 'maskreg[hub]'" in told


@contextmanager
def not_root() -> Iterator[None]:
    """Root may read everything, so for a while it is somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_seen_place_that_may_not_be_read_is_listed() -> None:
    side = Side(root=str(Digest.of(b"root")), params=1, tensors=1, dtypes={"BF16": 1})
    with TemporaryDirectory() as folder, open_catalog("sqlite://") as catalog:
        locked = Path(folder) / "checkpoint"
        locked.mkdir(mode=0)
        Path(folder).chmod(0o755)
        catalog.saw_source(side.root, str(locked))
        catalog.saw_source(side.root, str(locked / "deeper"))

        def run(checkpoint: Checkpoint) -> ApplyResult:
            raise AssertionError(f"{checkpoint.path} could be opened")

        with not_root(), pytest.raises(NotFoundError) as caught:
            apply_to_first(side, catalog, run, download=False, again="maskreg apply toy")
    assert f"tried: {locked / 'deeper'} (Permission denied); {locked} (" in caught.value.message
    assert caught.value.hint == "maskreg apply toy --source PATH"
