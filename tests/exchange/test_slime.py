"""The delta directory of slime: applied as its documentation says, and refused when it is damaged or hostile."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from numcodecs import Zstd

import maskreg
from maskreg.errors import CorruptError, FormatError, UsageError
from tests.checkpoints import make_checkpoint, write_safetensors
from tests.exchange.conftest import SOURCE, Lab

INDEX = "model.safetensors.index.json"


def parsed(path: Path) -> tuple[dict[str, Any], dict[str, str], bytes]:
    """A safetensors file as its documentation describes it: header, metadata, data."""
    blob = path.read_bytes()
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    return header, header.pop("__metadata__", {}), blob[8 + length :]


def tensors_of(checkpoint: Path) -> dict[str, bytes]:
    header, _, data = parsed(checkpoint / "model.safetensors")
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


def applied(version: Path, checkpoint: Path) -> dict[str, bytes]:
    """The tensors of a checkpoint after applying a version to it, written from slime's documentation alone."""
    tensors = tensors_of(checkpoint)
    index = json.loads((version / INDEX).read_text())
    how = index["metadata"]
    assert (how["version"], how["base_version"], how["compression_format"]) == ("000001", "000000", "zstd")
    for file in sorted(version.glob("*.safetensors")):
        header, checksums, data = parsed(file)
        for name, entry in header.items():
            assert index["weight_map"][name] == file.name
            old = np.frombuffer(tensors[name], np.uint8)
            delta = np.frombuffer(Zstd().decode(data[slice(*entry["data_offsets"])]), np.uint8)
            if how["delta_encoding"] == "xor":
                new = old ^ delta
            else:
                count = int.from_bytes(delta[:4].tobytes(), "little")
                new = old.copy()
                new[delta[4 : 4 + 4 * count].view("<u4")] = delta[4 + 4 * count :]
            sums = {"xxh3-128": xxhash.xxh3_128_hexdigest, "adler32": lambda data: f"{zlib.adler32(data):08x}"}
            assert sums[how["checksum_format"]](new.tobytes()) == checksums[name]
            tensors[name] = new.tobytes()
    return tensors


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("checksum", ["xxh3-128", "adler32"])
def test_the_documented_application_gives_the_target(lab: Lab, encoding: str, checksum: str) -> None:
    out = lab.folder / "weight_v000001"
    options = {"encoding": encoding, "checksum": checksum}
    maskreg.convert_to("toy:v1", "slime", out, options=options, workspace=lab.space)
    result = applied(out, lab.source)
    assert result == tensors_of(lab.target)
    # Only what changed is in it, and the small files of the target are beside it.
    assert json.loads((out / INDEX).read_text())["weight_map"].keys() == result.keys() - {
        "model.still.weight",
        "model.empty",
    }
    assert (out / "config.json").read_bytes() == (lab.target / "config.json").read_bytes()


def test_the_versions_are_those_that_were_given(lab: Lab) -> None:
    out = lab.folder / "out"
    options = {"version": 8, "base_version": 5}
    maskreg.convert_to("toy:v1", "slime", out, options=options, workspace=lab.space)
    metadata = json.loads((out / INDEX).read_text())["metadata"]
    assert (metadata["version"], metadata["base_version"]) == ("000008", "000005")
    with pytest.raises(UsageError, match=r"\b3\b.*\b3\b"):
        options = {"version": 3, "base_version": 3}
        maskreg.convert_to("toy:v1", "slime", out, options=options, force=True, workspace=lab.space)


@pytest.fixture
def version(lab: Lab) -> Path:
    """A version directory that another tool might have written: without maskreg's lineage."""
    out = lab.folder / "version"
    maskreg.convert_to("toy:v1", "slime", out, options={"encoding": "overwrite"}, workspace=lab.space)
    edit(out, lambda index: index["metadata"].pop("maskreg"))
    return out


def edit(version: Path, change: Any) -> None:
    index = json.loads((version / INDEX).read_text())
    change(index)
    (version / INDEX).write_text(json.dumps(index))


def rewrite(version: Path, name: str, frame: bytes, checksum: str | None = None) -> None:
    """Put another frame in the place of a tensor's, and perhaps another checksum."""
    path = version / "model-00000-of-00001.safetensors"
    header, checksums, data = parsed(path)
    frames = {key: np.frombuffer(data[slice(*entry["data_offsets"])], np.uint8) for key, entry in header.items()}
    frames[name] = np.frombuffer(frame, np.uint8)
    if checksum is not None:
        checksums[name] = checksum
    path.unlink()
    write_safetensors(path, {key: ("U8", value) for key, value in frames.items()}, checksums)


def test_a_directory_of_another_tool_gives_the_target(lab: Lab, version: Path) -> None:
    back = maskreg.convert_from(version, "slime", lab.source, "back", workspace=lab.space)
    assert back.manifest.target.root == lab.toy.manifest.target.root
    assert back.manifest.parts.keys() == {"mask", "delta"}


HALF = "model.half.weight"


def overwriting(positions: list[int], values: bytes, count: int | None = None) -> bytes:
    stated = np.array([len(positions) if count is None else count], "<u4").tobytes()
    return bytes(Zstd(1).encode(stated + np.array(positions, "<u4").tobytes() + values))


HOSTILE = {
    "beyond": (overwriting([3, 180], b"xy"), rf"tensor {HALF}: position 180 is not within its 180 bytes"),
    "order": (overwriting([9, 3], b"xy"), rf"tensor {HALF}: positions are not in ascending order"),
    "twice": (overwriting([3, 3], b"xy"), rf"tensor {HALF}: positions are not in ascending order"),
    "count": (overwriting([3], b"x", 1 << 31), rf"tensor {HALF}: 9 bytes are not 2,147,483,648 positions"),
    "bomb": (bytes(Zstd(1).encode(b"\0" * (1 << 27))), rf"tensor {HALF}: its frame announces 134,217,728 bytes"),
    "noise": (b"noise", rf"tensor {HALF}: its frame announces no size"),
    "cut": (overwriting([3], b"x")[:-1], rf"tensor {HALF}: its frame does not decode"),
    "two": (overwriting([3], b"x") * 2, rf"tensor {HALF}: its frame does not decode"),
    "other values": (overwriting([3], b"x"), rf"tensor {HALF}: does not match its checksum"),
    "no checksum": (overwriting([3], b"x"), rf"tensor {HALF}: the file has no checksum of it"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_frame_is_refused_by_name(lab: Lab, version: Path, kind: str) -> None:
    frame, message = HOSTILE[kind]
    rewrite(version, HALF, frame, "" if kind == "no checksum" else None)
    before = sorted((lab.folder / "home").rglob("*"))
    with pytest.raises((FormatError, CorruptError), match=message):
        maskreg.convert_from(version, "slime", lab.source, "back", workspace=lab.space)
    assert sorted((lab.folder / "home").rglob("*")) == before


BAD_INDEXES = {
    "full": (lambda index: index["metadata"].pop("delta_encoding"), "not a delta directory"),
    "encoding": (lambda index: index["metadata"].update(delta_encoding="gap"), "delta_encoding is 'gap'; known: xor"),
    "compression": (lambda index: index["metadata"].update(compression_format="lz4"), "compression_format is 'lz4'"),
    "checksum": (lambda index: index["metadata"].update(checksum_format="blake3"), "known: xxh3-128, adler32"),
    "version": (lambda index: index["metadata"].update(version=1), "version is 1, not a number as text"),
    "metadata": (lambda index: index.update(metadata=[]), "not a delta directory"),
    "path": (lambda index: index["weight_map"].update({HALF: "../x.safetensors"}), "not the plain name of a shard"),
    "missing": (lambda index: index["weight_map"].pop(HALF), f"tensor {HALF} is listed in no shard"),
    "lineage": (lambda index: index["metadata"].update(maskreg='{"schema": "x"}'), "maskreg: "),
}


@pytest.mark.parametrize("kind", BAD_INDEXES)
def test_a_wrong_index_is_refused(lab: Lab, version: Path, kind: str) -> None:
    change, message = BAD_INDEXES[kind]
    edit(version, change)
    with pytest.raises(FormatError, match=message):
        maskreg.convert_from(version, "slime", lab.source, "back", workspace=lab.space)


def test_a_tensor_that_the_source_lacks_is_refused_by_name(lab: Lab, version: Path) -> None:
    shutil.rmtree(lab.source)
    make_checkpoint(lab.source, {name: tensor for name, tensor in SOURCE.items() if name != HALF})
    with pytest.raises(FormatError, match=f"'{HALF}': "):
        maskreg.convert_from(version, "slime", lab.source, "back", workspace=lab.space)
