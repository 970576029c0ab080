"""Use cases on a Ray cluster: the same digests as on threads, whatever dies meanwhile, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.engine import running_on
from maskreg.flow.extract.extraction import extract
from tests.checkpoints import bf16, make_checkpoint, make_pair, moved
from tests.clusters import Killing, actor_pids

on_two_nodes = pytest.mark.usefixtures("ray_cluster")

_IMPATIENT = """
import sys
from maskreg.engine import ray as cluster
from maskreg_cli.start import main
cluster.AWAY_SECONDS = 2
sys.exit(main())
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return make_pair(tmp_path, shards=3, specials=True)


@on_two_nodes
def test_extract_gives_the_same_digest_on_any_number_of_workers(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        digests = {extract(source, target, tmp_path / "threads", reversible=True).digest}
        for workers in (1, 3):
            with running_on("ray", workers=workers):
                digests.add(extract(source, target, tmp_path / f"ray-{workers}", reversible=True).digest)
    assert len(digests) == 1


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pair of 24 blocks, so that something is left to do when a worker dies."""
    folder = tmp_path_factory.mktemp("large")
    tensor = bf16((1 << 22,), 1)
    source = {f"layers.{n}.weight": tensor for n in range(24)}
    target = dict.fromkeys(source, moved(tensor, 0.02, seed=2))
    return make_checkpoint(folder / "source", source, shards=4), make_checkpoint(folder / "target", target, shards=4)


@on_two_nodes
def test_a_worker_that_is_killed_changes_nothing(large: tuple[Path, Path], tmp_path: Path) -> None:
    with open_checkpoint(large[0]) as source, open_checkpoint(large[1]) as target:
        digest = extract(source, target, tmp_path / "threads").digest
        killing = Killing.worker()
        with running_on("ray", workers=2):
            assert extract(source, target, tmp_path / "ray", progress=killing).digest == digest
    assert killing.has_killed


@on_two_nodes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_what_is_interrupted_leaves_nothing(large: tuple[Path, Path], number: signal.Signals) -> None:
    command = [sys.executable, "-m", "maskreg", "extract", *map(str, large), "--name", "large"]
    started = subprocess.Popen(
        [*command, "--engine", "ray", "--workers", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    staging = Path(os.environ["MASKREG_HOME"]) / "staging"
    while started.poll() is None and not (actor_pids() and list(staging.glob("*/*"))):
        time.sleep(0.05)
    os.killpg(started.pid, number)
    _, talk = started.communicate(timeout=60)
    assert started.returncode == 128 + number, talk
    assert list(staging.iterdir()) == []
    for _ in range(200):
        if not actor_pids():
            break
        time.sleep(0.1)
    assert actor_pids() == set()


def test_a_cluster_that_goes_away_leaves_nothing(large: tuple[Path, Path], mortal_cluster: Any) -> None:
    command = [sys.executable, "-c", _IMPATIENT, "extract", *map(str, large), "--name", "large"]
    started = subprocess.Popen([*command, "--engine", "ray", "--workers", "2"], stderr=subprocess.PIPE, text=True)
    staging = Path(os.environ["MASKREG_HOME"]) / "staging"
    while started.poll() is None and not (actor_pids() and list(staging.glob("*/*"))):
        time.sleep(0.05)
    mortal_cluster.head_node.kill_gcs_server()
    mortal_cluster.head_node.kill_raylet()
    for pid in actor_pids():
        os.kill(pid, signal.SIGKILL)
    _, talk = started.communicate(timeout=120)
    assert started.returncode == 69, talk
    assert f"the Ray cluster at {os.environ['RAY_ADDRESS']} does not answer any more" in talk
    assert list(staging.iterdir()) == []
