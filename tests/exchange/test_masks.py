"""Masks in other tools' files: opened by the real libraries, and read back as one and the same artifact."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from safetensors.numpy import load_file, save_file

import maskreg
from maskreg.errors import CorruptError, DataError, FormatError, LimitError, NotFoundError
from maskreg.exchange.zarr_bool import chunk_shape
from maskreg.flow.masks.storing import RECIPE
from tests.exchange.conftest import TALL, Lab

SUFFIX = {"torch": ".pt", "safetensors-mask": ".safetensors", "zarr-bool": ".zarr"}
HALF = "model.half.weight"


def loaded(name: str, path: Path) -> dict[str, Any]:
    """The masks as the real library loads them."""
    if name == "torch":
        import torch

        return {key: value.numpy() for key, value in torch.load(path, weights_only=True).items()}
    if name == "safetensors-mask":
        return dict(load_file(path))
    group = zarr.open_group(path, mode="r")
    return {str(array.attrs["tensor"]): array[...] for _, array in group.arrays()}


FORMATS = [pytest.param("torch", marks=pytest.mark.torch), "safetensors-mask", "zarr-bool"]


@pytest.mark.parametrize("name", FORMATS)
def test_the_real_library_loads_the_masks(lab: Lab, name: str) -> None:
    out = lab.folder / f"masks{SUFFIX[name]}"
    converted = maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    masks = loaded(name, out)
    assert masks.keys() == lab.toy.artifact.mask.keys()
    for key, mask in lab.toy.artifact.mask.items():
        assert np.asarray(masks[key]).dtype == np.bool_
        assert np.array_equal(masks[key], mask.to_bool()), key
    assert converted.coordinates == sum(mask.nnz for mask in lab.toy.artifact.mask.values())
    assert converted.source is None
    files = [file for file in (out, *out.rglob("*")) if file.is_file()]
    assert converted.bytes == sum(file.stat().st_size for file in files)


@pytest.mark.torch
def test_torch_maps_the_file_too(lab: Lab) -> None:
    import torch

    maskreg.convert_to("toy:v1", "torch", lab.folder / "m.pt", workspace=lab.space)
    masks = torch.load(lab.folder / "m.pt", weights_only=True, mmap=True)
    assert np.array_equal(masks[TALL].numpy(), lab.toy.artifact.mask[TALL].to_bool())


def test_every_format_gives_the_same_mask(lab: Lab) -> None:
    backs = []
    for name, suffix in SUFFIX.items():
        out = lab.folder / f"masks{suffix}"
        maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
        backs.append(maskreg.convert_from(out, name, lab.source, f"back-{name}", workspace=lab.space))
    assert len({back.digest for back in backs}) == 1
    manifest = backs[0].manifest
    assert (manifest.kind, manifest.recipe, manifest.target) == ("mask", RECIPE, manifest.source)
    assert manifest.source == lab.toy.manifest.source
    for key, mask in lab.toy.artifact.mask.items():
        assert np.array_equal(backs[0].artifact.mask[key].packed, mask.packed)
    # Tied weights are one, as in the artifact.
    assert [row.aliases for row in backs[0].artifact.tensors] == [row.aliases for row in lab.toy.artifact.tensors]
    for name, suffix in SUFFIX.items():
        out = lab.folder / f"again{suffix}"
        maskreg.convert_to("back-torch", name, out, workspace=lab.space)
        again = maskreg.convert_from(out, name, lab.source, "again", workspace=lab.space)
        assert again.digest == backs[0].digest


@pytest.mark.parametrize("name", ["safetensors-mask", "zarr-bool"])
def test_masks_without_a_target_come_back_as_the_same_artifact(lab: Lab, name: str) -> None:
    combined = maskreg.combine(["toy:v1", "toy:v1"], "both", how="and", workspace=lab.space)
    drawn = maskreg.baseline("toy:v1", "random-global", "drawn", workspace=lab.space)
    for number, artifact in enumerate((combined, drawn)):
        out = lab.folder / f"masks-{number}"
        converted = maskreg.convert_to(artifact, name, out, workspace=lab.space)
        assert converted.notes == ()
        back = maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
        assert back.digest == artifact.digest


@pytest.mark.parametrize("name", sorted(SUFFIX))
def test_an_earlier_output_is_replaced_on_request(lab: Lab, name: str) -> None:
    out = lab.folder / "out"
    out = out.with_suffix(SUFFIX[name])
    maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    with pytest.raises(maskreg.CannotCreateError, match="exists already"):
        maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
    if out.is_dir():
        (out / "notes.txt").write_text("mine")
    converted = maskreg.convert_to("toy:v1", name, out, force=True, workspace=lab.space)
    assert converted.kept_files == (("notes.txt",) if out.is_dir() else ())
    maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
    assert [path.name for path in lab.folder.iterdir() if path.name.startswith(".")] == []


def test_a_foreign_folder_in_a_group_is_not_removed(lab: Lab) -> None:
    out = lab.folder / "masks.zarr"
    maskreg.convert_to("toy:v1", "zarr-bool", out, workspace=lab.space)
    (out / "mine").mkdir()
    with pytest.raises(maskreg.CannotCreateError, match=r"a directory with others inside \(mine\)"):
        maskreg.convert_to("toy:v1", "zarr-bool", out, force=True, workspace=lab.space)


def test_values_of_zero_and_one_are_masks_in_any_dtype(lab: Lab) -> None:
    mask = np.zeros((30, 3), np.bool_)
    mask[4, 1] = mask[29, 2] = True
    for dtype in (np.bool_, np.uint8, np.int64, np.float16, np.float32, np.float64):
        save_file({HALF: mask.astype(dtype)}, lab.folder / "m.safetensors")
        back = maskreg.convert_from(lab.folder / "m.safetensors", "safetensors-mask", lab.source, workspace=lab.space)
        assert np.array_equal(back.artifact.mask[HALF].to_bool(), mask)
        assert back.manifest.totals.nnz == 2


def test_what_is_no_mask_of_the_source_is_refused_by_name(lab: Lab) -> None:
    cases: list[tuple[str, str, Any]] = [
        (HALF, "neither 0 nor 1", np.full((30, 3), 2, np.uint8)),
        (HALF, "neither 0 nor 1", np.full((30, 3), 0.5, np.float32)),
        (HALF, r"a mask of shape \[3, 30\]; the source has \[30, 3\]", np.ones((3, 30), np.bool_)),
        ("model.nothing", "not in the source", np.ones((3, 30), np.bool_)),
    ]
    for name, message, mask in cases:
        save_file({name: mask}, lab.folder / "m.safetensors")
        with pytest.raises(FormatError, match=rf"tensor '?{name}.*{message}"):
            maskreg.convert_from(lab.folder / "m.safetensors", "safetensors-mask", lab.source, workspace=lab.space)


def test_a_folder_without_masks_is_refused_by_name(lab: Lab) -> None:
    (lab.folder / "empty").mkdir()
    for name in SUFFIX:
        with pytest.raises((NotFoundError, FormatError), match="empty") as raised:
            maskreg.convert_from(lab.folder / "empty", name, lab.source, workspace=lab.space)
        assert raised.value.hint


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_damage_is_refused_by_name(lab: Lab) -> None:
    for name, change in (
        ("safetensors-mask", lambda out: flip(out, -1)),
        ("zarr-bool", lambda out: (out / HALF / "c" / "0" / "0").unlink()),
        ("zarr-bool", lambda out: flip(out / HALF / "c" / "0" / "0", -8)),
    ):
        out = lab.folder / f"masks{SUFFIX[name]}"
        shutil.rmtree(out, ignore_errors=True)
        maskreg.convert_to("toy:v1", name, out, workspace=lab.space)
        change(out)
        with pytest.raises(DataError, match=r"tensor model\.\S+: "):
            maskreg.convert_from(out, name, lab.source, "back", workspace=lab.space)
    assert not list((lab.folder / "home" / "staging").glob("*"))


def test_another_source_is_refused(lab: Lab) -> None:
    maskreg.convert_to("toy:v1", "zarr-bool", lab.folder / "m.zarr", workspace=lab.space)
    with pytest.raises(DataError, match="has root"):
        maskreg.convert_from(lab.folder / "m.zarr", "zarr-bool", lab.target, "back", workspace=lab.space)


class Bomb:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return Path.touch, (Path("/tmp/never"),)  # type: ignore[return-value]


@pytest.mark.torch
def test_a_pickle_that_would_run_code_is_refused(lab: Lab, tmp_path: Path) -> None:
    import torch

    torch.save({HALF: Bomb()}, tmp_path / "bomb.pt")
    with pytest.raises(DataError):
        maskreg.convert_from(tmp_path / "bomb.pt", "torch", lab.source, "back", workspace=lab.space)
    torch.save({HALF: torch.ones(1).bool().expand(1 << 40)}, tmp_path / "huge.pt")
    with pytest.raises(DataError, match="a tensor lies outside its storage"):
        maskreg.convert_from(tmp_path / "huge.pt", "torch", lab.source, "back", workspace=lab.space)


@pytest.mark.torch
def test_masks_that_torch_saved_are_read(lab: Lab, tmp_path: Path) -> None:
    import torch

    mask = torch.zeros(30, 3, dtype=torch.bool)
    mask[7, 2] = True
    torch.save({HALF: mask, TALL: torch.ones(4097, 1025)}, tmp_path / "m.pt")
    back = maskreg.convert_from(tmp_path / "m.pt", "torch", lab.source, "back", workspace=lab.space)
    assert np.flatnonzero(back.artifact.mask[HALF].to_bool()).tolist() == [23]
    assert back.artifact.by_name[TALL].nnz == 4097 * 1025
    assert zipfile.is_zipfile(tmp_path / "m.pt")


def test_chunks_cover_an_array_in_order() -> None:
    assert chunk_shape(()) == ()
    assert chunk_shape((0, 7)) == (1, 7)
    assert chunk_shape((40, 16)) == (40, 16)
    assert chunk_shape((64, 4096, 1536)) == (1, 2730, 1536)
    assert chunk_shape((3, 1 << 23)) == (1, 1 << 22)


def test_arrays_of_the_real_library_are_read_whatever_their_chunks(lab: Lab) -> None:
    mask = np.random.default_rng(1).random((4097, 1025)) < 0.3
    layouts: list[tuple[tuple[int, int], Any]] = [((1000, 300), "auto"), ((4097, 1025), None), ((64, 1025), "auto")]
    for number, (chunks, compressors) in enumerate(layouts):
        group = zarr.create_group(lab.folder / f"{number}.zarr", zarr_format=3)
        array = group.create_array(TALL, shape=mask.shape, chunks=chunks, dtype="bool", compressors=compressors)
        array[...] = mask
        group.create_array(HALF, shape=(30, 3), chunks=(30, 3), dtype="bool")  # no chunk is written
        back = maskreg.convert_from(lab.folder / f"{number}.zarr", "zarr-bool", lab.source, workspace=lab.space)
        assert np.array_equal(back.artifact.mask[TALL].to_bool(), mask)
        assert back.manifest.totals.nnz == np.count_nonzero(mask)


def changed(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(fields)


BAD_ARRAYS = {
    "codec": (changed(codecs=[{"name": "bytes"}, {"name": "blosc"}]), "codecs"),
    "dtype": (changed(data_type="float32"), "not a boolean array"),
    "grid": (changed(chunk_grid={"name": "rectilinear"}), "not a boolean array"),
    "zero": (changed(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 3]}}), "not a boolean array"),
    "huge": (changed(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1 << 40, 3]}}), "hold more than"),
    "shape": (changed(shape=[30, 4]), "a mask of shape"),
    "fill": (changed(fill_value="NaN"), "not a boolean array"),
    "name": (changed(attributes={"tensor": "model.nothing"}), "not in the source"),
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_a_hostile_array_is_refused_by_name(lab: Lab, kind: str) -> None:
    change, message = BAD_ARRAYS[kind]
    out = lab.folder / "m.zarr"
    maskreg.convert_to("toy:v1", "zarr-bool", out, workspace=lab.space)
    document = json.loads((out / HALF / "zarr.json").read_text())
    change(document)
    (out / HALF / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=rf"tensor '?model.*{message}"):
        maskreg.convert_from(out, "zarr-bool", lab.source, "back", workspace=lab.space)


def test_a_chunk_with_other_bytes_is_refused_by_name(lab: Lab) -> None:
    from numcodecs import Zstd

    out = lab.folder / "m.zarr"
    maskreg.convert_to("toy:v1", "zarr-bool", out, workspace=lab.space)
    chunk = out / HALF / "c" / "0" / "0"
    for data, error, message in (
        (bytes(Zstd(1).encode(b"\2" * 90)), FormatError, "neither 0 nor 1"),
        (bytes(Zstd(1).encode(b"\0" * 91)), FormatError, "not a zstd frame of 90 bytes"),
        (bytes(Zstd(1).encode(b"\0" * (1 << 20))), FormatError, "not a zstd frame of 90 bytes"),
        (bytes(5000), LimitError, "5000 bytes; the limit is 1204"),
        (bytes(Zstd(1).encode(b"\0" * 90))[:-2], CorruptError, "does not decode"),
    ):
        chunk.write_bytes(data)
        with pytest.raises(error, match=rf"tensor {HALF}: .*{message}"):
            maskreg.convert_from(out, "zarr-bool", lab.source, "back", workspace=lab.space)
