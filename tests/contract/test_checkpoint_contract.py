"""What every checkpoint format must hold: spans read as stored, outputs written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.bucket import Location
from maskreg.checkpoint import FORMATS, Checkpoint, open_checkpoint
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import CannotCreateError, MaskregError, NoSpaceError, OutputExistsError, WrongCheckpointError
from maskreg.tensors.info import TensorInfo
from tests.buckets import bucket, log_in, upload
from tests.checkpoint.saving import save_dcp, save_torch
from tests.checkpoints import SMALL_FILES, Tensor, bf16, f16, f32, make_checkpoint
from tests.servers import S3Server

__all__ = ["bucket"]

TENSORS: Mapping[str, Tensor] = {
    "wide": f32((5, 7), 1),
    "model.layers.0.mlp.up_proj.weight": bf16((300, 70), 2),
    "half": f16((9,), 3),
    "scalar": bf16((), 4),
    "empty": bf16((0, 4), 5),
    "last": bf16((6, 6), 6),
}

SOURCES: Mapping[str, Callable[[Path], Path]] = {
    "safetensors": lambda folder: make_checkpoint(folder, TENSORS),
    "torch": lambda folder: save_torch(folder, TENSORS),
    "dcp": lambda folder: save_dcp(folder, TENSORS),
    "fsdp": lambda folder: save_torch(folder, TENSORS, "model_world_size_1_rank_0.pt"),
}
"""By format: writes a checkpoint of :data:`TENSORS` without maskreg, and returns what to open."""


BY_TORCH = {"torch", "dcp", "fsdp"}


@pytest.fixture
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint of a format."""
    return SOURCES[request.param](tmp_path / "source")


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A checkpoint of a format, on a disk or in a bucket."""
    name, in_bucket = request.param
    made = SOURCES[name](tmp_path / "source")
    if not in_bucket:
        return made
    server: S3Server = request.getfixturevalue("s3_server")
    log_in(server, monkeypatch)
    return upload(server, made, request.getfixturevalue("bucket"), f"run/{uuid4().hex}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every format on a disk, and in a bucket what is read from there."""
    marks = {name: [pytest.mark.torch] if name in BY_TORCH else [] for name in sorted(FORMATS)}
    if "on_disk" in metafunc.fixturenames:
        metafunc.parametrize("on_disk", [pytest.param(name, marks=marks[name]) for name in marks], indirect=True)
    if "source" in metafunc.fixturenames:
        on_disk = [pytest.param((name, False), id=name, marks=marks[name]) for name in marks]
        in_bucket = [pytest.param((name, True), id=f"{name} in a bucket") for name in marks if name not in BY_TORCH]
        metafunc.parametrize("source", on_disk + in_bucket, indirect=True)


@pytest.fixture
def writable(tmp_path: Path) -> Path:
    return SOURCES["safetensors"](tmp_path / "source")


def bits_of(checkpoint: Checkpoint, size: int = 1 << 12) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor with its bits, read span by span."""
    return {
        name: (info.dtype, info.shape, b"".join(checkpoint.read(name, *span).tobytes() for span in spans(info, size)))
        for name, info in checkpoint.tensors.items()
    }


def spans(info: TensorInfo, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, info.numel)) for start in range(0, info.numel, size)]


def copy(source: Checkpoint, plan: OutputPlan, out: Path, *, force: bool = False) -> Path:
    """Write the data of the source's tensors to a plan's output."""
    with write_checkpoint(out, plan, force=force) as writer:
        for info in plan.tensors:
            for start, stop in spans(info, 1000):
                writer.write(source.read(info.name, start, stop))
    return out


EXPECTED = {name: (dtype, bits.shape, bits.tobytes()) for name, (dtype, bits) in TENSORS.items()}


# -- the table


def test_every_format_is_tested() -> None:
    assert set(SOURCES) == set(FORMATS)


def test_one_format_recognizes_a_checkpoint(source: Location) -> None:
    with open_checkpoint(source) as checkpoint:
        assert [name for name, (_, recognize) in FORMATS.items() if recognize(source)] == [checkpoint.format]


def test_no_format_recognizes_something_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    for path in (tmp_path, tmp_path / "file"):
        assert not [name for name, (_, recognize) in FORMATS.items() if recognize(path)]
        with pytest.raises(MaskregError):
            open_checkpoint(path)


# -- reading


def test_a_checkpoint_says_what_it_is(source: Location) -> None:
    with open_checkpoint(source) as checkpoint:
        assert checkpoint.path == source
        assert checkpoint.hub == ""
        assert {name: (info.dtype, info.shape) for name, info in checkpoint.tensors.items()} == {
            name: (dtype, bits.shape) for name, (dtype, bits) in TENSORS.items()
        }
        assert all(name == info.name for name, info in checkpoint.tensors.items())
        assert {name: path.read_bytes() for name, path in checkpoint.small_files().items()} == SMALL_FILES
        assert checkpoint.other_weights() == ()


def test_any_span_equals_that_part_of_the_whole(source: Location) -> None:
    rng = np.random.default_rng(0)
    with open_checkpoint(source) as checkpoint:
        for name, (_, bits) in TENSORS.items():
            flat = bits.reshape(-1)
            assert np.array_equal(checkpoint.read(name, 0, flat.size), flat)
            for start, stop in np.sort(rng.integers(0, flat.size + 1, (20, 2))).tolist():
                values = checkpoint.read(name, start, stop)
                assert values.dtype == flat.dtype
                assert values.dtype.kind == "u"
                assert values.ndim == 1
                assert np.array_equal(values, flat[start:stop])


def test_a_span_is_the_readers_own_or_cannot_be_written(source: Location) -> None:
    with open_checkpoint(source) as checkpoint:
        if (span := checkpoint.read("last", 0, 36)).flags.writeable:
            span[:] = 0
        assert np.array_equal(checkpoint.read("last", 0, 36), TENSORS["last"][1].reshape(-1))
        checkpoint.map()
        assert bits_of(checkpoint) == EXPECTED


def test_spans_that_are_none(source: Location) -> None:
    with open_checkpoint(source) as checkpoint:
        for span in [(-1, 1), (2, 1), (0, 37), (37, 37)]:
            with pytest.raises(ValueError, match="36 elements"):
                checkpoint.read("last", *span)
        with pytest.raises(KeyError):
            checkpoint.read("missing", 0, 0)


def test_threads_share_a_checkpoint(source: Location) -> None:
    flat = TENSORS[name := "model.layers.0.mlp.up_proj.weight"][1].reshape(-1)
    with open_checkpoint(source) as checkpoint, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda start: checkpoint.read(name, start, start + 100), range(0, flat.size, 100)))
    assert np.array_equal(np.concatenate(parts), flat)


def test_a_closed_checkpoint_reads_nothing(source: Location) -> None:
    checkpoint = open_checkpoint(source)
    checkpoint.close()
    checkpoint.close()
    with pytest.raises(ValueError, match="closed"):
        checkpoint.read("last", 0, 1)


# -- writing


def test_what_is_written_reads_back(writable: Path, tmp_path: Path) -> None:
    with open_checkpoint(writable) as source:
        plan = plan_like(source)
        assert {info.name: info for info in plan.tensors} == dict(source.tensors)
        out = copy(source, plan, tmp_path / "out")
        with open_checkpoint(out) as written:
            assert written.format == source.format
            assert list(written.tensors) == list(source.tensors)
            assert bits_of(written) == EXPECTED
            assert {name: path.read_bytes() for name, path in written.small_files().items()} == SMALL_FILES
    on_disk = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert plan.total_bytes == on_disk
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_changes(writable: Path, tmp_path: Path) -> None:
    replaced, added = TensorInfo("half", "F32", (2,)), TensorInfo("new", "BF16", (3,))
    values: dict[str, npt.NDArray[Any]] = {"half": np.arange(2, dtype=np.uint32), "new": np.arange(3, dtype=np.uint16)}
    with open_checkpoint(writable) as source:
        plan = plan_like(
            source,
            replace={"half": replaced},
            remove=["wide"],
            add=[added],
            files={"config.json": b"{}"},
            remove_files=["config.json", "tokenizer.json"],
        )
        with write_checkpoint(tmp_path / "out", plan) as writer:
            for info in plan.tensors:
                writer.write(values[info.name] if info.name in values else source.read(info.name, 0, info.numel))
        with open_checkpoint(tmp_path / "out") as written:
            bits = bits_of(written)
            assert bits.keys() == (TENSORS.keys() - {"wide"}) | {"new"}
            assert bits["half"] == ("F32", (2,), values["half"].tobytes())
            assert bits["new"] == ("BF16", (3,), values["new"].tobytes())
            assert bits["last"] == EXPECTED["last"]
            assert {name: path.read_bytes() for name, path in written.small_files().items()} == {"config.json": b"{}"}


def test_changes_that_do_not_fit(writable: Path) -> None:
    info = TensorInfo("last", "BF16", (1,))
    changes: list[dict[str, Any]] = [{"replace": {"x": info}}, {"remove": ["x"]}, {"add": [info]}]
    with open_checkpoint(writable) as source:
        for change in changes:
            with pytest.raises(WrongCheckpointError):
                plan_like(source, **change)


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_the_stream_may_be_cut_anywhere(writable: Path, tmp_path: Path, cut: int) -> None:
    with open_checkpoint(writable) as source:
        plan = plan_like(source)
        stream = b"".join(EXPECTED[info.name][2] for info in plan.tensors)
        with write_checkpoint(tmp_path / "out", plan) as writer:
            for start in range(0, len(stream), cut):
                writer.write(stream[start : start + cut])
        with open_checkpoint(tmp_path / "out") as written:
            assert bits_of(written) == EXPECTED


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_nothing(writable: Path, tmp_path: Path, error: type[BaseException]) -> None:
    with open_checkpoint(writable) as source:
        plan = plan_like(source)
        with pytest.raises(error), write_checkpoint(tmp_path / "out", plan) as writer:
            writer.write(bytes(100))
            assert not (tmp_path / "out").exists()
            raise error
    assert list(tmp_path.iterdir()) == [writable]


@pytest.mark.parametrize("extra", [-1, 1])
def test_every_planned_byte_and_no_other(writable: Path, tmp_path: Path, extra: int) -> None:
    size = sum(len(data) for _, _, data in EXPECTED.values())
    with open_checkpoint(writable) as source:
        plan = plan_like(source)
        with pytest.raises(CannotCreateError), write_checkpoint(tmp_path / "out", plan) as writer:
            writer.write(bytes(size + extra))
    assert list(tmp_path.iterdir()) == [writable]


def test_an_output_is_replaced_by_force_alone(writable: Path, tmp_path: Path) -> None:
    with open_checkpoint(writable) as source:
        plan = plan_like(source)
        out = copy(source, plan, tmp_path / "out")
        before = files_in(out)
        with pytest.raises(OutputExistsError):
            copy(source, plan, out)
        with pytest.raises(ZeroDivisionError), write_checkpoint(out, plan, force=True):
            raise ZeroDivisionError
        assert files_in(out) == before
        assert copy(source, plan, out, force=True) == out
        with pytest.raises(CannotCreateError, match=str(writable)):
            copy(source, plan, writable, force=True)
    assert files_in(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


# -- formats that are only read


class ReadOnly(Checkpoint):
    """A checkpoint in memory, of a format that cannot be written."""

    format = "memory"

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path = path
        self.tensors = {name: TensorInfo(name, dtype, bits.shape) for name, (dtype, bits) in tensors.items()}
        self._bits = {name: bits.reshape(-1) for name, (_, bits) in tensors.items()}

    def read(self, name: str, start: int, stop: int, into: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[Any]:
        return self._bits[name][start:stop]

    def close(self) -> None: ...


@pytest.fixture
def read_only(tmp_path: Path) -> ReadOnly:
    return ReadOnly(tmp_path / "source", TENSORS)


@pytest.mark.parametrize(("shard_bytes", "shards"), [(1 << 30, 1), (20_000, 3), (1, 6)])
def test_what_cannot_be_written_becomes_safetensors(
    read_only: ReadOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int, shards: int
) -> None:
    monkeypatch.setattr("maskreg.checkpoint.plan.SHARD_BYTES", shard_bytes)
    out = copy(read_only, plan_like(read_only), tmp_path / "out")
    with open_checkpoint(out) as written:
        assert written.format == "safetensors"
        assert bits_of(written) == EXPECTED
    assert len(list(out.glob("*.safetensors"))) == shards


def test_space_is_checked_before_anything_is_written(
    writable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.disk.free_bytes", lambda _: 10)
    with open_checkpoint(writable) as source, pytest.raises(NoSpaceError, match=r"\b10\b"):
        copy(source, plan_like(source), tmp_path / "out")
    assert list(tmp_path.iterdir()) == [writable]
