from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.checkpoint.output import clean_stale
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import CannotCreateError, OutputExistsError
from tests.checkpoint.conftest import contents, plan_for
from tests.checkpoints import bf16, make_checkpoint, make_pair, write_safetensors


def copy(source: Checkpoint, out: Path, *, force: bool = False, span: int = 1 << 16) -> None:
    """Write ``source`` again, span by span."""
    plan = plan_like(source)
    with write_checkpoint(out, plan, force=force) as writer:
        for info in plan.tensors:
            for start in range(0, info.numel, span):
                writer.write(source.read(info.name, start, min(start + span, info.numel)).data)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("span", [1 << 14, 1 << 20])
def test_a_copy_is_byte_identical(tmp_path: Path, shards: int, span: int) -> None:
    directory, _ = make_pair(tmp_path, shards=shards, specials=True)
    (directory / "pytorch_model.bin").write_bytes(b"not copied")
    with open_checkpoint(directory) as source:
        copy(source, tmp_path / "made" / "on" / "the" / "way", span=span)
    (directory / "pytorch_model.bin").unlink()
    assert contents(tmp_path / "made/on/the/way") == contents(directory)
    assert [path.name for path in (tmp_path / "made/on/the").iterdir()] == ["way"]


def test_headers_of_other_writers_are_kept(tmp_path: Path) -> None:
    arrays = {"b": np.zeros((3,), np.float16), "a": np.ones((2,), np.float32)}
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"z": "1", "a": "2"}))
    with open_checkpoint(path) as source:
        copy(source, tmp_path / "y.safetensors")
    assert (tmp_path / "y.safetensors").read_bytes() == path.read_bytes()


def test_a_single_file_to_a_directory(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"w": bf16((4,))})
    with open_checkpoint(path) as source:
        copy(source, tmp_path / "out")
    assert contents(tmp_path / "out") == {"x.safetensors": path.read_bytes()}


def test_a_single_file_has_no_place_for_small_files(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"w": bf16((4,))})
    with open_checkpoint(path) as source:
        plan = plan_like(source, files={"config.json": b"{}"})
    with write_checkpoint(tmp_path / "y.safetensors", plan) as writer:
        assert writer.is_file
        assert writer.skipped_files == ("config.json",)
        writer.write(bytes(8))
    assert (tmp_path / "y.safetensors").is_file()
    with write_checkpoint(tmp_path / "y", plan) as writer:
        assert writer.skipped_files == ()
        writer.write(bytes(8))
    assert (tmp_path / "y" / "config.json").read_bytes() == b"{}"


def test_shards_without_data(tmp_path: Path) -> None:
    empty = {name: bf16((0, 3)) for name in "abcd"}
    directory = make_checkpoint(tmp_path / "source", {**empty, "e": bf16((4,)), "f": bf16((0,))}, shards=6)
    with open_checkpoint(directory) as source:
        copy(source, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(directory)


def test_any_buffer_of_any_length(source: Path, tmp_path: Path) -> None:
    with write_checkpoint(tmp_path / "out", plan_for(source)) as writer:
        writer.write(b"")
        writer.write(np.zeros((0, 3), np.uint16))
        writer.write(np.arange(6, dtype=np.uint16).reshape(2, 3))
        writer.write(bytearray(1))
        writer.write(memoryview(bytes(51)))
    data = (tmp_path / "out" / "model.safetensors").read_bytes()[-64:]
    assert data == np.arange(6, dtype=np.uint16).tobytes() + bytes(52)


def test_nothing_is_visible_before_the_end(source: Path, tmp_path: Path) -> None:
    with write_checkpoint(tmp_path / "out", plan_for(source)) as writer:
        writer.write(bytes(64))
        assert not (tmp_path / "out").exists()
        work = [path for path in tmp_path.iterdir() if path.name.startswith(".out.maskreg-")]
        assert len(work) == 1
        assert clean_stale(tmp_path) == ()
    assert (tmp_path / "out").is_dir()


def test_an_output_that_exists(source: Path, tmp_path: Path) -> None:
    for name in ("directory", "file", "link"):
        out = tmp_path / name
        if name == "directory":
            out.mkdir()
        elif name == "file":
            out.write_text("mine")
        else:
            out.symlink_to("nowhere")
        with pytest.raises(OutputExistsError) as caught, write_checkpoint(out, plan_for(source)):
            pass
        assert caught.value.facts["options"] == {"force": True}
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("single", [False, True])
def test_an_output_that_appears_meanwhile(source: Path, tmp_path: Path, single: bool) -> None:
    path = source / "model.safetensors" if single else source
    out = tmp_path / "out.safetensors"
    with pytest.raises(OutputExistsError), write_checkpoint(out, plan_for(path)) as writer:
        writer.write(bytes(64))
        out.write_text("another run's")
    assert out.read_text() == "another run's"
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out.safetensors"}


def test_force_replaces_a_link_and_not_what_is_behind(source: Path, tmp_path: Path) -> None:
    behind = make_checkpoint(tmp_path / "behind", {"w": bf16((4,))})
    before = contents(behind)
    (tmp_path / "out").symlink_to("behind")
    with write_checkpoint(tmp_path / "out", plan_for(source), force=True) as writer:
        writer.write(bytes(64))
    assert not (tmp_path / "out").is_symlink()
    assert contents(behind) == before


def test_what_force_refuses(source: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").touch()
    project = make_checkpoint(tmp_path / "project", {"w": bf16((4,))})
    (project / "src").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to_source").symlink_to("source")
    (source / "inside").mkdir()
    for out in (
        "folder", "project", "file", "fifo", "source", "to_source", ".", "source/inside",
        "source/../source", "folder/..",
    ):  # fmt: skip
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(CannotCreateError) as caught, write_checkpoint(tmp_path / out, plan_for(source), force=True):
            pass
        assert not isinstance(caught.value, OutputExistsError), out
        assert sorted(tmp_path.rglob("*")) == before


def test_force_refuses_the_source_file_and_links_to_it(source: Path, tmp_path: Path) -> None:
    file = source / "model.safetensors"
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.safetensors").symlink_to(file)
    for path, out in [(file, file), (tmp_path / "snapshot", source), (file, source)]:
        with (
            pytest.raises(CannotCreateError, match=f"{out}: .* {source}"),
            write_checkpoint(out, plan_for(path), force=True),
        ):
            pass


TOO_LARGE = """
import resource, signal, sys
from pathlib import Path
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import CannotCreateError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open_checkpoint(sys.argv[1]) as checkpoint:
    plan = plan_like(checkpoint)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
try:
    with write_checkpoint(Path(sys.argv[2]), plan) as writer:
        writer.write(bytes(20_000))
except CannotCreateError as error:
    print(error)
"""


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", {"w": bf16((10_000,))})
    out = tmp_path / "out"
    command = [sys.executable, "-c", TOO_LARGE, str(source), str(out)]
    child = subprocess.run(command, check=True, capture_output=True, text=True)
    assert child.stdout.startswith(f"{out}: ") and "File too large" in child.stdout
    assert list(tmp_path.iterdir()) == [source]


def test_places_where_nothing_can_be_made(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "out", tmp_path / ("n" * 250), Path("/proc/nowhere/out"), Path("/")):
        with pytest.raises(CannotCreateError), write_checkpoint(out, plan_for(source)):
            pass
