"""vLLM's sparse patches: loaded as its loader does, in bounded chunks; NaN and wrong lists are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskreg
from maskreg.errors import FormatError, UsageError
from maskreg.exchange.outgoing import ChangedSpan
from maskreg.exchange.sparse import SparsePatch, StoredPiece, changes_of
from maskreg.exchange.vllm import INDEX, planned
from maskreg.tensors.info import TensorInfo
from tests.checkpoints import Tensor, make_checkpoint, write_safetensors
from tests.exchange.conftest import SOURCE, TALL, Lab, target_of

HALF = "model.half.weight"


def listing(out: Path) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = json.loads((out / INDEX).read_text())["chunks"]
    return chunks


@pytest.mark.torch
@pytest.mark.parametrize("chunk_bytes", [1 << 20, 256 << 20])
def test_the_loader_of_vllm_gives_the_target(lab: Lab, chunk_bytes: int) -> None:
    """Each patch becomes a tensor of its full shape, NaN where it has no value; what is no NaN is copied."""
    import torch
    from safetensors.torch import load_file

    out = lab.folder / "patches"
    maskreg.convert_to("toy:v1", "vllm", out, options={"chunk_bytes": chunk_bytes}, workspace=lab.space)
    model = load_file(lab.source / "model.safetensors")
    for chunk in listing(out):
        arrays = load_file(out / chunk["file"])
        assert sum(array.nbytes for array in arrays.values()) <= chunk_bytes
        lists = (chunk[key] for key in ("names", "dtype_names", "shapes", "num_updates_list"))
        for n, (name, dtype, shape, count) in enumerate(zip(*lists, strict=True)):
            indices, values = arrays[f"{n}.indices"], arrays[f"{n}.values"]
            assert (indices.dtype, values.dtype) == (torch.int32, getattr(torch, dtype))
            assert len(indices) == len(values) == count
            staged = torch.full((model[name].numel(),), float("nan"), dtype=values.dtype)
            staged.index_copy_(0, indices.long(), values)
            staged = staged.view(shape)
            model[name] = torch.where(torch.isnan(staged), model[name], staged)
    target = load_file(lab.target / "model.safetensors")
    assert len(listing(out)) == (4 if chunk_bytes == 1 << 20 else 1)
    for name, tensor in target.items():
        bits = [side.reshape(-1).view(torch.uint8) for side in (tensor, model[name])]
        assert torch.equal(*bits), name


def test_nan_is_refused_by_name(lab: Lab) -> None:
    tensors = target_of(SOURCE)
    dtype, bits = tensors[HALF]
    tensors[HALF] = dtype, bits.copy()
    tensors[HALF][1][2, 1] = 0x7E01
    target = make_checkpoint(lab.folder / "diverged", tensors)
    maskreg.extract(lab.source, target, "diverged", workspace=lab.space)
    with pytest.raises(UsageError, match=rf"tensor {HALF}: element 7 becomes NaN"):
        maskreg.convert_to("diverged", "vllm", lab.folder / "out", workspace=lab.space)
    assert not (lab.folder / "out").exists()
    maskreg.convert_to("diverged", "slime", lab.folder / "out", workspace=lab.space)


@pytest.fixture
def patches(lab: Lab) -> Path:
    """Patches of one tensor in two chunks, as another tool might write them."""
    out = lab.folder / "other"
    out.mkdir()
    write(out, [[3, 9], [20]], [[1, 2], [3]])
    return out


def write(out: Path, indices: list[list[int]], values: list[list[int]], **changes: Any) -> None:
    chunks = []
    for n, (index, value) in enumerate(zip(indices, values, strict=True)):
        arrays: dict[str, Tensor] = {
            "0.indices": ("I32", np.array(index, np.uint32)),
            "0.values": ("F16", np.array(value, np.uint16)),
        }
        write_safetensors(out / f"{n}.safetensors", arrays)
        lists = {"names": [HALF], "dtype_names": ["float16"], "shapes": [[30, 3]], "num_updates_list": [len(index)]}
        chunks.append({"file": f"{n}.safetensors", **lists, **changes})
    (out / INDEX).write_text(json.dumps({"chunks": chunks}))


def test_patches_of_another_tool_are_read(lab: Lab, patches: Path) -> None:
    back = maskreg.convert_from(patches, "vllm", lab.source, "back", workspace=lab.space)
    assert np.flatnonzero(back.artifact.mask[HALF].to_bool()).tolist() == [3, 9, 20]


BAD: dict[str, tuple[list[list[int]], list[list[int]], dict[str, Any], str]] = {
    "nan": ([[3]], [[0x7E00]], {}, "a value is NaN"),
    "beyond": ([[90]], [[1]], {}, "index 90 is not within its 90 elements"),
    "order": ([[9], [3]], [[1], [2]], {}, "not in ascending order"),
    "twice": ([[9], [9]], [[1], [2]], {}, "not in ascending order"),
    "count": ([[9]], [[1]], {"num_updates_list": [2]}, "1 indices where 2 are listed"),
    "shape": ([[9]], [[1]], {"shapes": [[3, 30]]}, r"a patch of 'float16' \[3, 30\]; the source has F16 \[30, 3\]"),
    "dtype": ([[9]], [[1]], {"dtype_names": ["bfloat16"]}, "a patch of 'bfloat16'"),
    "name": ([[9]], [[1]], {"names": ["model.nothing"]}, "not in the source"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_wrong_patch_is_refused_by_name(lab: Lab, patches: Path, kind: str) -> None:
    indices, values, changes, message = BAD[kind]
    write(patches, indices, values, **changes)
    with pytest.raises(FormatError, match=rf"tensor '?model\.\S+: .*{message}"):
        maskreg.convert_from(patches, "vllm", lab.source, "back", workspace=lab.space)


def test_a_wrong_listing_is_refused(lab: Lab, patches: Path) -> None:
    for changes, message in (
        ({"file": "../x.safetensors"}, "not the plain name of a file"),
        ({"shapes": []}, "different lengths"),
        ({"names": [1]}, "not the name of a tensor: 1"),
        ({"names": None}, "must have the lists"),
    ):
        write(patches, [[9]], [[1]], **changes)
        with pytest.raises(FormatError, match=message):
            maskreg.convert_from(patches, "vllm", lab.source, "back", workspace=lab.space)
    (patches / INDEX).write_text("{}")
    with pytest.raises(FormatError, match="chunks must be a list"):
        maskreg.convert_from(patches, "vllm", lab.source, "back", workspace=lab.space)


LARGE = TensorInfo("model.experts", "BF16", (3 << 15, 1 << 15))
"""A tensor of 3 * 2^30 elements."""


def test_a_tensor_of_more_elements_than_32_bits_count(tmp_path: Path) -> None:
    start = (1 << 31) + (1 << 22)
    before = np.zeros(9, np.uint16)
    after = before.copy()
    after[[2, 7]] = 5, 6
    changes = changes_of(ChangedSpan(LARGE, start, start + 9, before, after))
    assert changes.indices.tolist() == [start + 2, start + 7]
    # Indices of 8 bytes and values of 2: a hundred to a chunk of 1,000 bytes.
    chunks = list(planned([LARGE], {LARGE.name: 250}, 1000))
    assert [(patch.first, patch.number) for chunk in chunks for patch in chunk] == [(0, 100), (100, 100), (200, 50)]
    arrays: dict[str, Tensor] = {"i": ("I64", changes.indices.view(np.uint64)), "v": ("BF16", changes.values)}
    with maskreg.open_checkpoint(write_safetensors(tmp_path / "x.safetensors", arrays)) as file:
        patch = SparsePatch(LARGE, [StoredPiece(file, "i", "v", LARGE)])
        block = np.zeros(1 << 22, np.uint16)
        patch.apply(start, start + (1 << 22), block)
        assert (np.flatnonzero(block).tolist(), block[[2, 7]].tolist()) == ([2, 7], [5, 6])
        patch.apply(0, 1 << 22, block)
        assert np.count_nonzero(block) == 2


def test_a_large_tensor_is_split_between_chunks(lab: Lab) -> None:
    out = lab.folder / "patches"
    maskreg.convert_to("toy:v1", "vllm", out, options={"chunk_bytes": 1 << 20}, workspace=lab.space)
    counts = [
        count
        for chunk in listing(out)
        for name, count in zip(chunk["names"], chunk["num_updates_list"], strict=True)
        if name == TALL
    ]
    assert len(counts) == 4
    assert sum(counts) == lab.toy.artifact.by_name[TALL].differing
    back = maskreg.convert_from(out, "vllm", lab.source, "back", workspace=lab.space)
    assert back.digest == lab.toy.digest
