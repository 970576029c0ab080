from __future__ import annotations

import gc
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.safetensors import open_path
from maskreg.errors import CorruptError, FormatError, LimitError, NotFoundError
from tests.checkpoints import SMALL_FILES, bf16, header_bytes, make_checkpoint, make_pair, write_safetensors
from tests.limited import limited


def open_handles(folder: Path) -> int:
    """Of files in a folder: this process might still close others, of tests before."""
    fds = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")
    return sum(str(folder) in os.path.realpath(fd) for fd in fds.iterdir())


def test_a_span_of_a_huge_tensor_needs_only_its_own_memory(tmp_path: Path) -> None:
    numel, tail = 1 << 34, bf16((1000,))[1]
    entry = {"dtype": "BF16", "shape": [numel], "data_offsets": [0, 2 * numel]}
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(header_bytes({"w": entry}))
        file.seek(2 * (numel - 1000), os.SEEK_CUR)
        file.write(tail.tobytes())
    tracemalloc.start()
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(checkpoint.read("w", numel - 1000, numel), tail)
        for start in range(0, 64 << 20, 1 << 20):
            checkpoint.read("w", start, start + (1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20


def test_handles_are_released(tmp_path: Path) -> None:
    source, _ = make_pair(tmp_path, shards=4)
    checkpoint = open_checkpoint(source)
    assert open_handles(source) == 4
    del checkpoint
    gc.collect()
    assert open_handles(source) == 0
    (source / "model-00003-of-00004.safetensors").write_bytes(b"nonsense")
    with pytest.raises(FormatError):
        open_checkpoint(source)
    gc.collect()
    assert open_handles(source) == 0


def test_small_files_and_other_weights(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "c", {"w": bf16((4,))}, shards=1)
    (tmp_path / "real.txt").write_text("x")
    (directory / "linked.txt").symlink_to(tmp_path / "real.txt")
    (directory / "broken.txt").symlink_to(tmp_path / "nowhere")
    for name in ("chat_template.jinja", "LICENSE", "Notice.md", "modeling_x.py", "a.model", "b.tiktoken"):
        (directory / name).write_text(name)
    others = (
        "pytorch_model.bin", "consolidated.00.pth", "consolidated.safetensors", "m.gguf", "opt.pt", "stray.safetensors",
        "pytorch_model.bin.index.json",
    )  # fmt: skip
    for name in (*others, "README.md", ".hidden.json", "notes.odt"):
        (directory / name).write_text(name)
    (directory / "original").mkdir()
    (directory / "big.json").write_bytes(bytes(101))
    with limited(small_file_bytes=100), open_checkpoint(directory) as checkpoint:
        assert set(checkpoint.small_files()) == {
            *SMALL_FILES, "linked.txt", "chat_template.jinja", "LICENSE", "Notice.md", "modeling_x.py", "a.model",
            "b.tiktoken",
        }  # fmt: skip
        assert checkpoint.small_files()["linked.txt"].read_bytes() == b"x"
        assert checkpoint.other_weights() == tuple(sorted([*others, "original/", "big.json"]))
    with open_checkpoint(directory / "model.safetensors") as checkpoint:
        assert checkpoint.small_files() == {}
        assert checkpoint.other_weights() == ()


def test_a_directory_with_one_safetensors_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "weights.safetensors", {"w": bf16((4,))})
    (tmp_path / "consolidated.safetensors").write_bytes(b"")
    with open_path(tmp_path) as checkpoint:
        assert [shard.file_name for shard in checkpoint.shards] == ["weights.safetensors"]
    write_safetensors(tmp_path / "more.safetensors", {"w": bf16((4,))})
    with pytest.raises(FormatError, match=r"more\.safetensors, weights\.safetensors") as caught:
        open_checkpoint(tmp_path)
    assert INDEX_NAME in caught.value.hint


def test_one_shard_alone_is_no_checkpoint(tmp_path: Path) -> None:
    write_safetensors(tmp_path / SHARD, {"w": bf16((4,))})
    with pytest.raises(NotFoundError, match=SHARD):
        open_checkpoint(tmp_path)
    (tmp_path / SHARD).rename(tmp_path / "model-00001-of-00001.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert set(checkpoint.tensors) == {"w"}


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"w": bf16((100,))})
    with open_checkpoint(path) as checkpoint:
        os.truncate(path, path.stat().st_size - 2)
        assert checkpoint.read("w", 0, 99).size == 99
        with pytest.raises(CorruptError, match=r"^w: "):
            checkpoint.read("w", 0, 100)
    with pytest.raises(CorruptError, match=r"\b198\b.*\b200\b"):
        open_checkpoint(path)
    for size in (50, 8, 3, 0):
        os.truncate(path, size)
        with pytest.raises(FormatError):
            open_checkpoint(path)


def test_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.safetensors")
    with pytest.raises(FormatError, match="fifo"):
        open_checkpoint(tmp_path / "fifo.safetensors")
    with pytest.raises(FormatError, match="/dev/null"):
        open_checkpoint("/dev/null")
    (tmp_path / "d" / "model.safetensors").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"d/model\.safetensors"):
        open_checkpoint(tmp_path / "d")
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "model.safetensors").symlink_to("nowhere")
    with pytest.raises(NotFoundError, match=r"l/model\.safetensors"):
        open_checkpoint(tmp_path / "l")


SHARD = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entries: entries.update(extra=SHARD), "extra is listed in .* and found in none"),
        (lambda entries: entries.pop("a"), "a is listed in no shard"),
        (lambda entries: entries.update(d=SHARD), "d is listed in"),
        (lambda entries: entries.update(a="../x.safetensors"), "not the plain name"),
        (lambda entries: entries.update(a="/etc/x.safetensors"), "not the plain name"),
        (lambda entries: entries.update(a="x.bin"), "not the plain name"),
        (lambda entries: entries.update(a=1), "must name a file"),
        (lambda entries: entries.update({"a\n": SHARD}), "control characters"),
        (lambda entries: entries.clear(), "at least one"),
    ],
)
def test_an_index_that_lies(tmp_path: Path, change: Any, message: str) -> None:
    make_checkpoint(tmp_path, {name: bf16((4,)) for name in "abcd"}, shards=2)
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    change(index["weight_map"])
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(FormatError, match=message):
        open_checkpoint(tmp_path)


def test_shards_that_do_not_fit_their_index(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, {name: bf16((4,)) for name in "abcd"}, shards=2)
    write_safetensors(tmp_path / SHARD, {name: bf16((4,)) for name in "abc"})
    with pytest.raises(FormatError, match=rf"\bc .*{SHARD}"):
        open_checkpoint(tmp_path)
    (tmp_path / SHARD).unlink()
    with pytest.raises(NotFoundError, match=SHARD):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}, "weight_map": {}}'])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX_NAME).write_text(text)
    with pytest.raises(FormatError):
        open_checkpoint(tmp_path)


def test_limits_over_all_shards(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, {name: bf16((4,)) for name in "abcd"}, shards=2)
    with limited(tensors=3), pytest.raises(LimitError, match=r"\b4 .* 3$"):
        open_checkpoint(tmp_path)
    with limited(index_json_bytes=50), pytest.raises(LimitError, match=r"50$"):
        open_checkpoint(tmp_path)
