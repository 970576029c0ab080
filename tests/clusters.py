"""A real Ray cluster of several nodes on this machine, started when the first test asks for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="session")
def _ray_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(_QUIET)
    # Short: the paths of sockets lie in it.
    folder = tempfile.mkdtemp(prefix="maskreg-ray-")
    nodes: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 200 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**nodes, "include_dashboard": False, "temp_dir": folder})
    try:
        cluster.add_node(**nodes)
        yield cluster
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def ray_cluster(_ray_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster of two nodes with two CPUs each, which ``--engine ray`` finds."""
    for name, value in _QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_ADDRESS", _ray_nodes.address)
    return _ray_nodes


def actor_pids() -> set[int]:
    """Processes of this machine in which an actor works for maskreg."""
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        # It may end while it is looked at.
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::_Actor"):
                pids.add(int(folder.name))
    return pids
