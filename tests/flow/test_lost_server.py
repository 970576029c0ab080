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
from maskreg.flow.merge.checkpoint import MergedCheckpoint, write
from maskreg.flow.merge.recipe import Recipe
from maskreg.progress import Progress
from tests.buckets import client_of, log_in, objects_in, options_of, upload
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.flow.making import extracted
from tests.servers import SeaweedFS


class Killer:
    """A progress listener that kills the server when the first block is done."""

    def __init__(self, server: SeaweedFS, starter: ThreadPoolExecutor | None) -> None:
        """Nothing happens yet.

        Args:
            server: to kill.
            starter: a thread that starts it again after five seconds; None for never. The server ends with the thread.
        """
        self._server, self._starter = server, starter
        self._restart: Future[None] | None = None
        self.killed = False

    def start(self, label: str, total_bytes: int) -> None:
        pass

    def advance(self, n_bytes: int) -> None:
        if not self.killed:
            self.killed = True
            self._server.kill()
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


Work = Callable[[list[BucketPath], Artifact, Path, BucketPath, Progress], object]


def extracting(stored: list[BucketPath], artifact: Artifact, home: Path, out: BucketPath, progress: Progress) -> None:
    with open_checkpoint(stored[0]) as source, open_checkpoint(stored[1]) as target:
        assert extract(source, target, home, progress=progress, jobs=1).digest == artifact.digest


def applying(stored: list[BucketPath], artifact: Artifact, home: Path, out: BucketPath, progress: Progress) -> None:
    with open_checkpoint(stored[0]) as source:
        assert apply(artifact, source, out, progress=progress, jobs=1).to_json()["out"] == str(out)


def merged(stored: list[BucketPath], artifact: Artifact, home: Path, out: BucketPath, progress: Progress) -> None:
    with (
        open_checkpoint(stored[0]) as source,
        MergedCheckpoint([artifact], source, Recipe.of("linear", [1.0], {})) as model,
    ):
        write(model, out, progress=progress, jobs=1)


WORKS: Mapping[str, Work] = {"extract": extracting, "apply": applying, "merge": merged}


def again(server: SeaweedFS, paths: list[BucketPath]) -> list[BucketPath]:
    """The same paths, of which nothing is known yet."""
    return [BucketPath.of(str(path), options_of(server)) for path in paths]


@pytest.fixture
def out(own_server: SeaweedFS, stored: list[BucketPath]) -> BucketPath:
    return BucketPath.of(f"{stored[0].bucket.root}/{uuid4().hex}", options_of(own_server))


def is_target(server: SeaweedFS, out: BucketPath, pair: list[Path]) -> bool:
    bucket = out.bucket.root.removeprefix("s3://")
    written = {key.rpartition("/")[2]: data for key, data in objects_in(server, bucket, f"{out.key}/").items()}
    return written == {path.name: path.read_bytes() for path in pair[1].iterdir()}


@pytest.mark.parametrize("name", WORKS)
def test_a_server_that_comes_back_costs_time_alone(
    name: str,
    own_server: SeaweedFS,
    starter: ThreadPoolExecutor,
    pair: list[Path],
    stored: list[BucketPath],
    artifact: Artifact,
    out: BucketPath,
    tmp_path: Path,
) -> None:
    killer = Killer(own_server, starter)
    WORKS[name](again(own_server, stored), artifact, tmp_path / "home", out, killer)
    killer.join()
    assert name == "extract" or is_target(own_server, out, pair)


@pytest.mark.parametrize("name", WORKS)
def test_a_server_that_is_gone_ends_the_work_with_nothing_visible(
    name: str,
    own_server: SeaweedFS,
    pair: list[Path],
    stored: list[BucketPath],
    artifact: Artifact,
    out: BucketPath,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killer = Killer(own_server, None)
    with monkeypatch.context() as impatient, pytest.raises(UnavailableError, match="does not answer"):
        # It soon gives up where nothing listens, and waits for a server that is slow.
        impatient.setattr(maskreg.bucket.path, "_RETRIES", 2)
        impatient.setattr(maskreg.bucket.uploads, "ATTEMPTS", 1)
        WORKS[name](again(own_server, stored), artifact, tmp_path / "home", out, killer)
    assert not [path for path in (tmp_path / "home").glob("**/*") if path.is_file()]
    killer.join()
    bucket = out.bucket.root.removeprefix("s3://")
    assert objects_in(own_server, bucket, f"{out.key}/") == {}
    # What could not be dropped while the server was gone is found afterwards, and only once.
    dropped = drop_abandoned(out, idle=timedelta(0))
    assert all(str(path).startswith(f"{out}/") for path in dropped)
    assert drop_abandoned(out, idle=timedelta(0)) == ()
    WORKS[name](again(own_server, stored), artifact, tmp_path / "home", out, Nothing())
    assert name == "extract" or is_target(own_server, out, pair)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", ["extract", "apply"])
def test_an_interrupt_does_not_wait_for_a_server_that_hangs(
    name: str,
    jobs: int,
    own_server: SeaweedFS,
    pair: list[Path],
    stored: list[BucketPath],
    artifact: Artifact,
    out: BucketPath,
    tmp_path: Path,
) -> None:
    bucket = out.bucket.root.removeprefix("s3://")
    # To find parts of an upload that were left, it has to have begun.
    uploads = partial(client_of(own_server).list_multipart_uploads, Bucket=bucket, Prefix=out.key)
    hanging = Hanging(own_server, lambda: name == "extract" or bool(uploads().get("Uploads")))
    paths = again(own_server, stored) if name == "extract" else pair
    try:
        with open_checkpoint(paths[0]) as source, open_checkpoint(paths[1]) as target:
            with pytest.raises(KeyboardInterrupt) as interrupt:
                if name == "extract":
                    extract(source, target, tmp_path / "home", progress=hanging, jobs=jobs)
                else:
                    apply(artifact, source, out, progress=hanging, jobs=jobs)
            assert hanging.is_hanging
    finally:
        own_server.cont()
    notes = getattr(interrupt.value, "__notes__", [])
    assert ([f"the doctor of {out} removes" in note for note in notes] == [True]) == (name == "apply")
    assert objects_in(own_server, bucket, f"{out.key}/") == {}


class Nothing:
    """A progress listener that does nothing."""

    def start(self, label: str, total_bytes: int) -> None:
        pass

    def advance(self, n_bytes: int) -> None:
        pass


class Hanging(Nothing):
    """A progress listener that hangs the server when a block is done, and sends an interrupt a second later."""

    def __init__(self, server: SeaweedFS, is_time: Callable[[], bool]) -> None:
        """Nothing happens yet.

        Args:
            server: to hang.
            is_time: asked after each block until it says yes.
        """
        self._server, self._is_time = server, is_time
        self.is_hanging = False

    def advance(self, n_bytes: int) -> None:
        if not self.is_hanging and self._is_time():
            self.is_hanging = True
            self._server.stop()
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
