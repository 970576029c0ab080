"""Checkpoints that are written to a bucket: whole, or not at all."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest

from maskreg.bucket import BucketPath
from maskreg.bucket import uploads as uploads_module
from maskreg.bucket.uploads import CLAIM, Begun, Upload, Uploads, abandoned, drop_abandoned
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import CannotCreateError, ConfigError, FormatError, NotFoundError, OutputExistsError, TryAgainError
from maskreg.settings import StoreOptions
from tests.buckets import bucket, client_of, objects_in, options_of, server
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.e2e.attack.proxy import Faults, fault_proxy
from tests.servers import S3Server

__all__ = ["bucket", "server"]

TENSORS = {"a": bf16((70, 100), 1), "b": bf16((50, 100), 2), "c": bf16((3,), 3)}

LARGE = {"a": bf16((3000, 1000), 1), "b": bf16((3000, 1000), 2), "c": bf16((3,), 3)}
"""Tensors whose files have several parts."""

PART = 5 << 20
"""Bytes of a part here: the fewest that services take."""

SPAN = 700_000
"""Elements that are written together at most."""


@pytest.fixture(autouse=True)
def small_parts(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads_module, "PART_BYTES", PART)


@pytest.fixture
def out(server: S3Server, bucket: str) -> BucketPath:
    return BucketPath.of(f"s3://{bucket}/runs/{uuid4().hex}", options_of(server))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "source", TENSORS, shards=2)


def stored(server: S3Server, out: BucketPath) -> dict[str, bytes]:
    """What is under the prefix, by name."""
    objects = objects_in(server, out.bucket.root.removeprefix("s3://"), f"{out.key}/")
    return {key.removeprefix(f"{out.key}/"): data for key, data in objects.items()}


def write(source: Checkpoint, plan: OutputPlan, out: BucketPath, *, force: bool = False) -> None:
    """Write the data of all tensors, on threads, in no order."""
    spans: list[tuple[int, str, int, int]] = []
    offset = 0
    for info in plan.tensors:
        size = min(SPAN, info.numel // 3 + 1)
        for start in range(0, info.numel, size):
            spans.append((offset + 2 * start, info.name, start, min(start + size, info.numel)))
        offset += info.nbytes
    random.Random(0).shuffle(spans)
    with write_checkpoint(out, plan, force=force) as writer, ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda span: writer.write_at(span[0], source.read(*span[1:])), spans):
            pass


def unfinished(server: S3Server, out: BucketPath) -> list[str]:
    """Objects with parts that were sent and neither completed nor dropped."""
    rows = client_of(server).list_multipart_uploads(Bucket=out.bucket.root.removeprefix("s3://")).get("Uploads", [])
    return [row["Key"] for row in rows if row["Key"].startswith(out.key)]


@pytest.mark.parametrize(("tensors", "shards"), [(TENSORS, 3), (LARGE, 1)], ids=["small", "large"])
def test_the_files_are_those_of_a_folder(
    server: S3Server, tmp_path: Path, out: BucketPath, tensors: Mapping[str, Tensor], shards: int
) -> None:
    source = make_checkpoint(tmp_path / "source", tensors, shards=shards)
    with open_checkpoint(source) as checkpoint:
        write(checkpoint, plan_like(checkpoint), out)
    assert stored(server, out) == {path.name: path.read_bytes() for path in source.iterdir()}
    assert unfinished(server, out) == []


@pytest.mark.parametrize("steps", range(9))
def test_killed_at_any_step_a_reader_sees_the_whole_model_or_none(
    server: S3Server, tmp_path: Path, out: BucketPath, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two requests of a commit that replaces a checkpoint; a claim keeps others off until it is removed."""
    source = make_checkpoint(tmp_path / "source", TENSORS, shards=3)
    with open_checkpoint(source) as checkpoint:
        plan = plan_like(checkpoint)
        write(checkpoint, plan, out)
        before = stored(server, out)
        whole = {**before, "config.json": b"{}"}
        left = steps

        def stopping(method: Callable[..., None]) -> Callable[..., None]:
            def stopped(self: object, *args: object, **options: object) -> None:
                nonlocal left
                if not left:
                    raise KeyboardInterrupt
                left -= 1
                method(self, *args, **options)

            return stopped

        with monkeypatch.context() as patch:
            patch.setattr(Upload, "complete", stopping(Upload.complete))
            patch.setattr(Uploads, "delete", stopping(Uploads.delete))
            changed = plan_like(checkpoint, files={"config.json": b"{}"})
            with suppress(KeyboardInterrupt):
                write(checkpoint, changed, out, force=True)
        after = stored(server, out)
        if {name: data for name, data in after.items() if name != CLAIM} not in (before, whole):
            with pytest.raises(NotFoundError):
                open_checkpoint(out)
        if CLAIM in after:
            with pytest.raises(TryAgainError):
                write(checkpoint, changed, out, force=True)
            assert drop_abandoned(out) == ()
            assert drop_abandoned(out, idle=timedelta(0)) == (out / CLAIM,)
        write(checkpoint, changed, out, force=True)
    assert stored(server, out) == whole


@pytest.mark.parametrize(("tensors", "force"), [(TENSORS, True), (LARGE, False)], ids=["small", "large"])
def test_of_two_writers_one_writes_all_files(
    server: S3Server,
    tmp_path: Path,
    out: BucketPath,
    tensors: Mapping[str, Tensor],
    force: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second comes to its commit while the first is about to complete a file, and the first goes on after that."""
    complete, is_amid, may_go_on = Upload.complete, Event(), Event()

    def held(upload: Upload, **options: bool) -> None:
        if upload.path.name.startswith("model-00002") and not is_amid.is_set():
            is_amid.set()
            assert may_go_on.wait(60)
        complete(upload, **options)

    monkeypatch.setattr(Upload, "complete", held)
    changed = {name: moved(tensor, 0.5) for name, tensor in tensors.items()}
    folders = [make_checkpoint(tmp_path / str(n), own, shards=3) for n, own in enumerate((tensors, changed))]
    with ExitStack() as opened, ThreadPoolExecutor(1) as pool:
        first, second = (opened.enter_context(open_checkpoint(folder)) for folder in folders)
        plan = plan_like(second)
        opened.callback(may_go_on.set)
        with pytest.raises(TryAgainError), write_checkpoint(out, plan, force=force) as writer:
            for info in plan.tensors:
                writer.write(second.read(info.name, 0, info.numel))
            winning = pool.submit(write, first, plan_like(first), out, force=force)
            assert is_amid.wait(60)
        may_go_on.set()
        winning.result()
    assert stored(server, out) == {path.name: path.read_bytes() for path in folders[0].iterdir()}
    assert unfinished(server, out) == []


def test_files_of_another_writer_are_noticed_where_nothing_keeps_it_off(
    server: S3Server, tmp_path: Path, out: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in services that ignore conditions: a shard is replaced before the index appears."""
    complete = Upload.complete

    def replaced(upload: Upload, **options: bool) -> None:
        if options and upload.path.name != CLAIM:
            other = f"{out.key}/model-00002-of-00003.safetensors"
            client_of(server).put_object(Bucket=out.bucket.root.removeprefix("s3://"), Key=other, Body=b"other")
        complete(upload, **options)

    monkeypatch.setattr(Upload, "complete", replaced)
    source = make_checkpoint(tmp_path / "source", TENSORS, shards=3)
    with open_checkpoint(source) as checkpoint, pytest.raises(TryAgainError):
        write(checkpoint, plan_like(checkpoint), out)
    with pytest.raises(FormatError):
        open_checkpoint(BucketPath.of(str(out), out.bucket.options))


def test_what_exists_is_replaced_by_force_alone(server: S3Server, source: Path, out: BucketPath, bucket: str) -> None:
    with open_checkpoint(source) as checkpoint:
        plan = plan_like(checkpoint)
        write(checkpoint, plan, out)
        client_of(server).put_object(Bucket=bucket, Key=f"{out.key}/notes.txt", Body=b"mine")
        before = stored(server, out)
        with pytest.raises(OutputExistsError):
            write(checkpoint, plan, out)
        with write_checkpoint(out, plan, force=True) as writer:
            for info in plan.tensors:
                writer.write(checkpoint.read(info.name, 0, info.numel))
        assert writer.kept_files == ("notes.txt",)
        assert stored(server, out) == before
        client_of(server).put_object(Bucket=bucket, Key=f"{out.key}/other.safetensors", Body=b"")
        with pytest.raises(CannotCreateError, match="files of another checkpoint would stay"):
            write(checkpoint, plan, out, force=True)
    for name, fault in (("inner/x", "others inside"), ("notes.txt", "files without")):
        client_of(server).put_object(Bucket=bucket, Key=f"{out.key}-other/{name}", Body=b"")
        with open_checkpoint(source) as checkpoint, pytest.raises(CannotCreateError, match=fault):
            write(checkpoint, plan, BucketPath(out.bucket, f"{out.key}-other"), force=True)
        client_of(server).delete_object(Bucket=bucket, Key=f"{out.key}-other/{name}")


def test_a_source_is_never_replaced(server: S3Server, source: Path, out: BucketPath) -> None:
    with open_checkpoint(source) as checkpoint:
        write(checkpoint, plan_like(checkpoint), out)
    with open_checkpoint(out) as checkpoint, pytest.raises(CannotCreateError, match="destroy the source"):
        write(checkpoint, plan_like(checkpoint), BucketPath.of(str(out), options_of(server)), force=True)


def test_one_file_is_one_object(server: S3Server, tmp_path: Path, out: BucketPath) -> None:
    folder = make_checkpoint(tmp_path / "source", TENSORS)
    with open_checkpoint(folder / "model.safetensors") as checkpoint:
        write(checkpoint, plan_like(checkpoint), out / "model.safetensors")
        with pytest.raises(OutputExistsError):
            write(checkpoint, plan_like(checkpoint), out / "model.safetensors")
        write(checkpoint, plan_like(checkpoint), out / "model.safetensors", force=True)
    assert stored(server, out) == {"model.safetensors": (folder / "model.safetensors").read_bytes()}


@pytest.mark.parametrize("extra", [-2, 2])
def test_nothing_is_visible_of_less_or_more_than_was_planned(
    server: S3Server, tmp_path: Path, out: BucketPath, extra: int
) -> None:
    with open_checkpoint(make_checkpoint(tmp_path / "source", LARGE, shards=3)) as checkpoint:
        plan = plan_like(checkpoint)
        with pytest.raises(CannotCreateError), write_checkpoint(out, plan) as writer:
            writer.write(bytes(sum(info.nbytes for info in plan.tensors) - 2))
            assert stored(server, out) == {}
            writer.write(bytes(2 + extra) if extra > 0 else b"")
    assert stored(server, out) == {}
    assert unfinished(server, out) == []


def test_places_where_nothing_can_be_written(source: Path, out: BucketPath) -> None:
    with open_checkpoint(source) as checkpoint:
        plan = plan_like(checkpoint)
        with pytest.raises(CannotCreateError, match="a prefix of its own"):
            write(checkpoint, plan, BucketPath(out.bucket))
        with pytest.raises(NotFoundError, match="no such bucket"):
            write(checkpoint, plan, BucketPath.of("s3://no-such-bucket/x", out.bucket.options))


def test_checkpoints_are_written_to_s3_alone() -> None:
    with pytest.raises(ConfigError, match="S3 alone"):
        Uploads(BucketPath.of("gs://team/x"))


def test_a_part_has_its_memory_once(out: BucketPath) -> None:
    uploads = Uploads(out)
    upload = Upload(uploads, out / "model.safetensors", 2 * PART)
    tracemalloc.start()
    for offset in range(0, PART - 1024, 1024):
        upload.write_at(offset, memoryview(bytes(1024)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    uploads.close()
    assert PART <= peak < PART + PART // 8


def test_what_a_killed_run_left_is_dropped(server: S3Server, out: BucketPath) -> None:
    uploads = Uploads(out)
    upload = Upload(uploads, out / "model.safetensors", 3 * PART)
    upload.write_at(0, memoryview(bytes(PART)))
    upload.sync()
    uploads.close()
    assert unfinished(server, out) == [f"{out.key}/model.safetensors"]
    assert drop_abandoned(out) == ()
    assert drop_abandoned(out, idle=timedelta(0)) == (out / "model.safetensors",)
    assert unfinished(server, out) == []


def test_a_run_that_still_writes_one_file_has_abandoned_none() -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    hours = {"run/step-1/first": 3, "run/step-1/last": 0.5, "run/killed": 3, "run/killed/last": 1}
    begun = [Begun(key, f"of {key}", now - timedelta(hours=ago)) for key, ago in hours.items()]
    assert [upload.key for upload in abandoned(begun, now, timedelta(hours=1))] == ["run/killed", "run/killed/last"]


class LostOnce(Faults):
    """Carries out a request and loses its answer: that which makes an object of parts, or one that is conditional."""

    def draw(self, method: str, listing: bool, conditional: bool) -> str:
        self.requests += method == "POST"
        # The first POST begins the upload, the second completes it.
        is_last = conditional or (method, self.requests) == ("POST", 2)
        return "lost" if is_last and not self.total["lost"] and self._count("lost") else ""


@pytest.mark.parametrize("tensors", [TENSORS, LARGE], ids=["small", "large"])
def test_an_answer_that_is_lost_does_not_fail_what_was_done(
    server: S3Server, tmp_path: Path, out: BucketPath, tensors: Mapping[str, Tensor]
) -> None:
    folder = make_checkpoint(tmp_path / "source", tensors)
    faults = LostOnce()
    with fault_proxy(server.endpoint, faults) as url, open_checkpoint(folder) as source:
        write(source, plan_like(source), BucketPath.of(str(out), StoreOptions(endpoint=url)))
    assert faults.total["lost"] == 1
    assert stored(server, out) == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert unfinished(server, out) == []
