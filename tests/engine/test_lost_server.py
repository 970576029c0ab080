"""Workers of a cluster and an S3 server: with credentials of their own, without, and while it is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from maskreg.bucket import BucketPath
from maskreg.bucket.uploads import drop_abandoned
from maskreg.checkpoint import open_checkpoint
from maskreg.engine import running_on
from maskreg.errors import RefusedError
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from tests.buckets import log_in, objects_in, options_of, upload
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.flow.making import extracted
from tests.flow.test_lost_server import Killer
from tests.servers import S3Server, SeaweedFS

Give = Callable[[S3Server], None]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SeaweedFS]:
    """A server of this test alone, whose credentials this process has."""
    server = SeaweedFS()
    log_in(server, monkeypatch)
    yield server
    server.close()


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    source = {f"model.layers.{n}.mlp.up_proj.weight": bf16((1500, 4096), n) for n in range(4)}
    target = {name: moved(tensor, 0.2, seed=n) for n, (name, tensor) in enumerate(source.items())}
    return [make_checkpoint(tmp_path / name, t, shards=2) for name, t in (("source", source), ("target", target))]


def test_a_server_that_comes_back_costs_workers_time_alone(
    server: SeaweedFS, nodes_with_credentials: Give, pair: list[Path], tmp_path: Path
) -> None:
    nodes_with_credentials(server)
    bucket = server.new_bucket()
    stored = upload(server, pair[0], bucket, "source")
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        artifact = extracted(tmp_path / "home", source, target)
    out = BucketPath.of(f"s3://{bucket}/out", options_of(server))
    with ThreadPoolExecutor(1) as starter, running_on("ray", workers=2):
        killer = Killer(server, starter)
        with open_checkpoint(stored) as source:
            apply(artifact, source, out, progress=killer)
        killer.join()
        # The server ends with the thread that has started it.
        written = {key.removeprefix("out/"): data for key, data in objects_in(server, bucket, "out/").items()}
        assert written == {path.name: path.read_bytes() for path in pair[1].iterdir()}
        assert drop_abandoned(out, idle=timedelta(0)) == ()


def test_a_node_without_credentials_is_named(
    server: SeaweedFS, ray_cluster: Any, pair: list[Path], tmp_path: Path
) -> None:
    stored = upload(server, pair[0], server.new_bucket(), "source")
    with (
        open_checkpoint(stored) as source,
        open_checkpoint(pair[1]) as target,
        running_on("ray", workers=1),
        pytest.raises(RefusedError, match=r"node \S+: s3://\S+: no credentials"),
    ):
        extract(source, target, tmp_path / "home")
