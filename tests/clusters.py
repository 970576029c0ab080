"""A real Ray cluster of several nodes on this machine, started when the first test asks for it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from tests.servers import S3Server

_QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}

_CREDENTIALS = "credentials"


_NODE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 200 << 20}


@pytest.fixture(scope="session")
def _ray_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    # Short: the paths of sockets lie in it.
    folder = tempfile.mkdtemp(prefix="maskreg-ray-")
    # Nodes have credentials of their own: those that a test puts there.
    own = {"AWS_SHARED_CREDENTIALS_FILE": f"{folder}/{_CREDENTIALS}", "AWS_EC2_METADATA_DISABLED": "true"}
    os.environ.update({**_QUIET, **own})
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={**_NODE, "include_dashboard": False, "temp_dir": folder}
    )
    try:
        cluster.add_node(**_NODE)
        cluster.credentials = Path(folder) / _CREDENTIALS
        yield cluster
    finally:
        cluster.shutdown()
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


@pytest.fixture
def mortal_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of one node, of this test alone, which ``--engine ray`` finds."""
    from ray.cluster_utils import Cluster

    for name, value in _QUIET.items():
        monkeypatch.setenv(name, value)
    folder = tempfile.mkdtemp(prefix="maskreg-ray-")
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={**_NODE, "include_dashboard": False, "temp_dir": folder}
    )
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nodes_with_credentials(ray_cluster: Any) -> Iterator[Callable[[S3Server], None]]:
    """Gives the nodes of the cluster the credentials of a server, until the test ends."""
    path: Path = ray_cluster.credentials

    def give(server: S3Server) -> None:
        keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
        path.write_text("\n".join(["[default]", *(f"{name} = {key}" for name, key in keys.items())]))

    yield give
    path.unlink(missing_ok=True)


class Killing:
    """A progress listener that kills something at the first report.

    Attributes:
        has_killed: that was done.
    """

    def __init__(self, kill: Callable[[], object]) -> None:
        """Nothing happens yet.

        Args:
            kill: kills it.
        """
        self._kill = kill
        self.has_killed = False

    @classmethod
    def worker(cls) -> Self:
        """Kills one of the workers."""
        return cls(lambda: os.kill(min(actor_pids()), signal.SIGKILL))

    def start(self, label: str, total_bytes: int) -> None:
        """Nothing is done yet."""

    def advance(self, n_bytes: int) -> None:
        """Kill it, once."""
        if not self.has_killed:
            self._kill()
            self.has_killed = True


def actor_pids() -> set[int]:
    """Processes below this one in which an actor works for maskreg."""
    actors, parents = set(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        # It may end while it is looked at.
        with suppress(OSError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::_Actor"):
                actors.add(pid)
    return {pid for pid in actors if os.getpid() in _ancestors(pid, parents)}


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid
