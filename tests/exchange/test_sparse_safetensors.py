"""Sparse safetensors: read by the real library, and refused when indices are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import maskreg
from maskreg.errors import CorruptError, DataError, FormatError
from tests.checkpoints import Bits
from tests.exchange.conftest import SOURCE, Lab, target_of

Q = "model.layers.0.mlp.experts.up_proj"


@pytest.mark.torch
def test_the_documented_application_gives_the_target(lab: Lab) -> None:
    from safetensors import safe_open

    out = lab.folder / "update.safetensors"
    converted = maskreg.convert_to("toy:v1", "sparse-safetensors", out, workspace=lab.space)
    assert out.is_file()
    # A single file has no room for them, and says so.
    assert len(converted.notes) == 1 and ": config.json, generation_config.json" in converted.notes[0]
    with safe_open(out, "pt") as file:
        metadata = file.metadata()
        assert (metadata["sparse"], metadata["model_version"]) == ("True", "1")
        assert int(metadata["total_changed_elements"]) == converted.coordinates
        names = set(json.loads(metadata["changed_params"]))
        assert names == SOURCE.keys() - {"model.still.weight", "model.empty"}
        for name, (_, expected) in target_of(SOURCE).items():
            if name in names:
                tensor = np.array(SOURCE[name][1]).reshape(-1)
                values = file.get_tensor(f"{name}.values")
                import torch

                bits = values.view({2: torch.int16, 4: torch.int32}[values.element_size()]).numpy()
                tensor[file.get_tensor(f"{name}.indices").numpy()] = bits.view(tensor.dtype)
                assert np.array_equal(tensor.reshape(expected.shape), expected)


def plain(folder: Path, indices: Bits, values: Bits, name: str = Q) -> Path:
    """A file of another tool, with one tensor of U16 values that pass for the source's dtype."""
    path = folder / "other.safetensors"
    save_file({f"{name}.indices": indices, f"{name}.values": values}, path)
    blob = path.read_bytes()
    path.write_bytes(blob.replace(b'"U16"', b'"F16"'))
    return path


HALF = "model.half.weight"
BAD = {
    "beyond": ([3, 90], r"\b90 .*\b90 "),
    "negative": ([-1, 4], r"-1 .*\b90 "),
    "twice": ([4, 4], r"\b4 "),
    "order": ([7, 4], r"\D+$"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_wrong_indices_are_refused_by_name(lab: Lab, kind: str, dtype: type[np.signedinteger]) -> None:
    indices, message = BAD[kind]
    path = plain(lab.folder, np.array(indices, dtype), np.zeros(2, np.uint16), HALF)
    with pytest.raises(FormatError, match=rf"{HALF}: \D*{message}"):
        maskreg.convert_from(path, "sparse-safetensors", lab.source, "back", workspace=lab.space)


def test_a_file_of_another_tool_is_read(lab: Lab) -> None:
    path = plain(lab.folder, np.array([3, 89], np.uint32), np.array([1, 2], np.uint16), HALF)
    back = maskreg.convert_from(path, "sparse-safetensors", lab.source, "back", workspace=lab.space)
    assert back.artifact.by_name[HALF].differing == 2
    assert np.flatnonzero(back.artifact.mask[HALF].to_bool()).tolist() == [3, 89]


@pytest.mark.torch
def test_rows_and_columns_are_read(lab: Lab) -> None:
    """What grail writes of its deltas."""
    import torch
    from safetensors.torch import load_file as load
    from safetensors.torch import save_file as save

    before, after = (load(folder / "model.safetensors") for folder in (lab.source, lab.target))
    tensors = {}
    for name, tensor in after.items():
        if not tensor.numel():
            continue
        # Of their bits, since a zero that changes its sign is no change to grail.
        width = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
        flat = [side.view(width).reshape(len(side) if side.ndim else 1, -1) for side in (tensor, before[name])]
        places = torch.nonzero(flat[0] != flat[1]).T.to(torch.int32)
        tensors[f"{name}.indices"] = places.contiguous()
        tensors[f"{name}.values"] = tensor.reshape(len(tensor) if tensor.ndim else 1, -1)[*places.long()].contiguous()
    save(tensors, lab.folder / "grail.safetensors")
    back = maskreg.convert_from(lab.folder / "grail.safetensors", "sparse-safetensors", lab.source, workspace=lab.space)
    assert back.manifest.target.root == lab.toy.manifest.target.root


def test_what_does_not_fit_is_refused_by_name(lab: Lab) -> None:
    ones, two = np.ones(2, np.uint16), np.array([1, 2], np.int32)
    cases = (
        ("F16.* BF16", two, ones, Q),
        ("U8", np.array([1, 2], np.uint8), ones, HALF),
        (r"\[2\] .*\[3\]", two, np.ones(3, np.uint16), HALF),
        (r"\b91 .*\b90 ", np.arange(91, dtype=np.int32), np.ones(91, np.uint16), HALF),
        (str(lab.source), two, ones, "model.unknown"),
    )
    for message, indices, values, name in cases:
        path = plain(lab.folder, indices, values, name)
        with pytest.raises(FormatError, match=rf"tensor '?model\..*{message}"):
            maskreg.convert_from(path, "sparse-safetensors", lab.source, "back", workspace=lab.space)
    for names in (("a.indices",), ("a.values",), ("a",)):
        save_file(dict.fromkeys(names, two), lab.folder / "other.safetensors")
        with pytest.raises(FormatError, match=r"tensor 'a"):
            maskreg.convert_from(
                lab.folder / "other.safetensors", "sparse-safetensors", lab.source, workspace=lab.space
            )


@pytest.mark.parametrize("metadata", [{"sparse": "False"}, {"sparse": "True", "num_changed_params": "2"}])
def test_an_anchor_and_a_delta_that_lacks_a_tensor_are_refused(lab: Lab, metadata: dict[str, str]) -> None:
    path = lab.folder / "trl.safetensors"
    tensors = {"model.router.bias.indices": np.ones(1, np.int32), "model.router.bias.values": np.ones(1, np.float32)}
    save_file(tensors, path, {**metadata, "num_changed_params": "1", "sparse": "True"})
    maskreg.convert_from(path, "sparse-safetensors", lab.source, "back", workspace=lab.space)
    save_file(tensors, path, metadata)
    with pytest.raises(DataError):
        maskreg.convert_from(path, "sparse-safetensors", lab.source, "refused", workspace=lab.space)


def test_a_file_that_is_cut_is_refused_by_name(lab: Lab) -> None:
    out = lab.folder / "update.safetensors"
    maskreg.convert_to("toy:v1", "sparse-safetensors", out, workspace=lab.space)
    out.write_bytes(out.read_bytes()[:-9])
    with pytest.raises(CorruptError, match=r"update\.safetensors: "):
        maskreg.convert_from(out, "sparse-safetensors", lab.source, "back", workspace=lab.space)
