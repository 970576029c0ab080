"""A server that is killed in the middle: work goes on when it is back, or ends as unavailable with nothing visible."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

import maskreg.bucket.path
import maskreg.bucket.uploads
import maskreg.checkpoint.ahead
from maskreg.artifact.reader import Artifact
from maskreg.bucket import BucketPath
from maskreg.bucket.uploads import drop_abandoned
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import UnavailableError
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from maskreg.progress import SILENT, Progress, Silent
from tests.buckets import client_of, log_in, objects_in, options_of, upload
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
    monkeypatch.setattr(maskreg.bucket.path, "_PATIENCE", timedelta(minutes=10))
    monkeypatch.setattr(maskreg.bucket.uploads, "_PATIENCE_SECONDS", 600)
    monkeypatch.setattr(maskreg.bucket.uploads, "ATTEMPTS", 40)


class Site:
    """A pair of checkpoints on the server and here, their artifact, and where an output goes."""

    def __init__(self, server: SeaweedFS, pair: list[Path], stored: list[BucketPath], artifact: Artifact) -> None:
        self.server, self.pair, self.artifact, self._stored = server, pair, artifact, stored
        self.out = BucketPath.of(f"{stored[0].bucket.root}/{uuid4().hex}", options_of(server))

    @property
    def stored(self) -> list[BucketPath]:
        """The pair in the bucket, of which nothing is known yet."""
        return [BucketPath.of(str(path), options_of(self.server)) for path in self._stored]

    @property
    def written(self) -> dict[str, bytes]:
        """What lies where the output goes."""
        objects = objects_in(self.server, self.out.bucket.root.removeprefix("s3://"), f"{self.out.key}/")
        return {key.rpartition("/")[2]: data for key, data in objects.items()}

    @property
    def is_done(self) -> bool:
        """Whether the output is the target."""
        return self.written == {path.name: path.read_bytes() for path in self.pair[1].iterdir()}


def extracting(site: Site, home: Path, progress: Progress) -> None:
    before, after = site.stored
    with open_checkpoint(before) as source, open_checkpoint(after) as target:
        assert extract(source, target, home, progress=progress, jobs=1).digest == site.artifact.digest


def applying(site: Site, home: Path, progress: Progress) -> None:
    with open_checkpoint(site.stored[0]) as source:
        assert apply(site.artifact, source, site.out, progress=progress, jobs=1).to_json()["out"] == str(site.out)


WORKS: Mapping[str, Callable[[Site, Path, Progress], None]] = {
    "extract": extracting,
    "apply": applying,
}


@pytest.fixture
def site(own_server: SeaweedFS, pair: list[Path], stored: list[BucketPath], artifact: Artifact) -> Site:
    return Site(own_server, pair, stored, artifact)


@pytest.mark.parametrize("name", WORKS)
def test_a_server_that_comes_back_costs_time_alone(
    name: str, site: Site, starter: ThreadPoolExecutor, tmp_path: Path
) -> None:
    killer = Killer(site.server, starter)
    WORKS[name](site, tmp_path / "home", killer)
    killer.join()
    assert name == "extract" or site.is_done


@pytest.mark.parametrize("name", WORKS)
def test_a_server_that_is_gone_ends_the_work_with_nothing_visible(
    name: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer(site.server)
    with monkeypatch.context() as impatient, pytest.raises(UnavailableError, match="does not answer"):
        # It soon gives up where nothing listens, and waits for a server that is slow.
        impatient.setattr(maskreg.bucket.path, "_RETRIES", 2)
        impatient.setattr(maskreg.bucket.uploads, "ATTEMPTS", 1)
        WORKS[name](site, tmp_path / "home", killer)
    assert not [path for path in (tmp_path / "home").glob("**/*") if path.is_file()]
    killer.join()
    assert site.written == {}
    # What could not be dropped while the server was gone is found afterwards, and only once.
    dropped = drop_abandoned(site.out, idle=timedelta(0))
    assert all(str(path).startswith(f"{site.out}/") for path in dropped)
    assert drop_abandoned(site.out, idle=timedelta(0)) == ()
    WORKS[name](site, tmp_path / "home", SILENT)
    assert name == "extract" or site.is_done


@pytest.mark.parametrize(("name", "jobs"), [("extract", 1), ("apply", 2)])
def test_an_interrupt_does_not_wait_for_a_server_that_hangs(name: str, jobs: int, site: Site, tmp_path: Path) -> None:
    bucket = site.out.bucket.root.removeprefix("s3://")
    # To find parts of an upload that were left, it has to have begun.
    uploads = partial(client_of(site.server).list_multipart_uploads, Bucket=bucket, Prefix=site.out.key)
    hanging = Hanging(site.server, lambda: name == "extract" or bool(uploads().get("Uploads")))
    paths = site.stored if name == "extract" else site.pair
    try:
        with open_checkpoint(paths[0]) as source, open_checkpoint(paths[1]) as target:
            with pytest.raises(KeyboardInterrupt) as interrupt:
                if name == "extract":
                    extract(source, target, tmp_path / "home", progress=hanging, jobs=jobs)
                else:
                    apply(site.artifact, source, site.out, progress=hanging, jobs=jobs)
            assert hanging.is_hanging
    finally:
        site.server.cont()
    notes = getattr(interrupt.value, "__notes__", [])
    assert ([f"the doctor of {site.out} removes" in note for note in notes] == [True]) == (name == "apply")
    assert site.written == {}


class Hanging(Silent):
    """Hangs the server when a block is done and ``is_time`` says yes, and sends an interrupt a second later."""

    def __init__(self, server: SeaweedFS, is_time: Callable[[], bool]) -> None:
        self._server, self._is_time = server, is_time
        self.is_hanging = False

    def advance(self, n_bytes: int) -> None:
        if not self.is_hanging and self._is_time():
            self.is_hanging = True
            self._server.stop()
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
