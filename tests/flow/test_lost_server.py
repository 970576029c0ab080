"""A server that is killed in the middle: work goes on when it is back, or ends as unavailable with nothing visible."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

import maskreg.bucket.path
import maskreg.checkpoint.ahead
from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath
from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.errors import UnavailableError
from maskreg.flow.extract.extraction import extract
from maskreg.progress import SILENT, Progress, Silent
from tests.buckets import log_in, options_of, upload
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.flow.making import extracted
from tests.servers import SeaweedFS


class Killer(Silent):
    """Kills the server when the first block is done; with ``starter``, a thread starts it again after five seconds."""

    def __init__(self, server: SeaweedFS, starter: ThreadPoolExecutor | None = None) -> None:
        self._server, self._starter = server, starter
        self._restart: Future[None] | None = None
        self.killed = False

    def advance(self, n_bytes: int) -> None:
        if not self.killed:
            self.killed = True
            self._server.kill()
            # The server ends with the thread that starts it.
            self._restart = self._starter.submit(self._start_again) if self._starter else None

    def _start_again(self) -> None:
        time.sleep(5)
        self._server.restart()

    def join(self) -> None:
        """Wait for the restart; start the server if it never was to come back."""
        assert self.killed
        if self._restart is None:
            self._server.restart()
        else:
            self._restart.result()


@pytest.fixture(scope="module")
def starter() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def own_server(starter: ThreadPoolExecutor) -> Iterator[SeaweedFS]:
    server = SeaweedFS()
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    source = {f"model.layers.{number}.mlp.up_proj.weight": bf16((1500, 4096), number) for number in range(4)}
    target = {name: moved(tensor, 0.2, seed=number) for number, (name, tensor) in enumerate(source.items())}
    folder = tmp_path_factory.mktemp("pair")
    return [make_checkpoint(folder / name, t, shards=2) for name, t in (("source", source), ("target", target))]


@pytest.fixture(scope="module")
def artifact(pair: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    with open_checkpoint(pair[0]) as source, open_checkpoint(pair[1]) as target:
        return extracted(tmp_path_factory.mktemp("home"), source, target)


@pytest.fixture(scope="module")
def stored(own_server: SeaweedFS, pair: list[Path]) -> list[BucketPath]:
    bucket = own_server.new_bucket()
    return [upload(own_server, folder, bucket, folder.name) for folder in pair]


@pytest.fixture(autouse=True)
def _quick(own_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's credentials; little on its way when it is killed; and patience until a busy machine has it back."""
    log_in(own_server, monkeypatch)
    monkeypatch.setattr(maskreg.checkpoint.ahead, "AHEAD_BYTES", 1 << 20)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", uuid4().hex)  # a connection of its own
    monkeypatch.setattr(maskreg.bucket.path, "PATIENCE", timedelta(minutes=10))


def extract_stored(stored: list[BucketPath], server: SeaweedFS, home: Path, progress: Progress) -> Digest:
    """The digest of the pair in the bucket, of which nothing is known yet."""
    before, after = (BucketPath.of(str(path), options_of(server)) for path in stored)
    with open_checkpoint(before) as source, open_checkpoint(after) as target:
        return extract(source, target, home, progress=progress, jobs=1).digest


def test_a_server_that_comes_back_costs_time_alone(
    own_server: SeaweedFS, stored: list[BucketPath], artifact: Artifact, starter: ThreadPoolExecutor, tmp_path: Path
) -> None:
    killer = Killer(own_server, starter)
    assert extract_stored(stored, own_server, tmp_path, killer) == artifact.digest
    killer.join()


def test_a_server_that_is_gone_ends_the_work_with_nothing_visible(
    own_server: SeaweedFS, stored: list[BucketPath], artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(own_server)
    with monkeypatch.context() as impatient, pytest.raises(UnavailableError):
        # It soon gives up where nothing listens, and waits for a server that is slow.
        impatient.setattr(maskreg.bucket.path, "RETRIES", 2)
        extract_stored(stored, own_server, tmp_path, killer)
    assert not [path for path in tmp_path.glob("**/*") if path.is_file()]
    killer.join()
    assert extract_stored(stored, own_server, tmp_path, SILENT) == artifact.digest


class Hanging(Silent):
    """Hangs the server when a block is done, and sends an interrupt a second later."""

    def __init__(self, server: SeaweedFS) -> None:
        self._server = server
        self.is_hanging = False

    def advance(self, n_bytes: int) -> None:
        if not self.is_hanging:
            self.is_hanging = True
            self._server.stop()
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_an_interrupt_does_not_wait_for_a_server_that_hangs(
    own_server: SeaweedFS, stored: list[BucketPath], tmp_path: Path
) -> None:
    hanging = Hanging(own_server)
    try:
        with pytest.raises(KeyboardInterrupt):
            extract_stored(stored, own_server, tmp_path, hanging)
        assert hanging.is_hanging
    finally:
        own_server.cont()
