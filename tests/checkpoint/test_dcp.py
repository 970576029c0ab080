"""Distributed checkpoints whose metadata is wrong, or leads elsewhere."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.dcp import NAMES
from maskreg.checkpoint.pickles import Record, load_records
from maskreg.errors import DataError, FormatError, MaskregError, NotFoundError
from tests.checkpoint.saving import save_dcp
from tests.checkpoints import bf16

pytestmark = pytest.mark.torch

TENSORS = {"model.a.weight": bf16((6, 4)), "model.b.weight": bf16((3,))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_dcp(tmp_path / "run", TENSORS)


def changed(folder: Path, **info: Any) -> None:
    """Change what the metadata says of every chunk's place."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())  # noqa: S301  # written by the test
    metadata.storage_data = {index: replace(place, **info) for index, place in metadata.storage_data.items()}
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


@pytest.mark.parametrize(
    ("info", "error", "fault"),
    [
        ({"relative_path": "../outside.distcp"}, FormatError, ".metadata: damaged, or of an unknown version: not the"),
        ({"relative_path": "/etc/passwd"}, FormatError, "not the plain name of a file: '/etc/passwd'"),
        ({"relative_path": "__9_0.distcp"}, NotFoundError, "__9_0.distcp: a file of the checkpoint is missing"),
        ({"offset": 1 << 40}, DataError, "__0_0.distcp: the file is cut short: it has"),
        ({"offset": -5}, DataError, "__0_0.distcp: "),
        ({"offset": 3}, FormatError, "__0_0.distcp: not an archive of torch.save, or damaged"),
        ({"length": "x"}, FormatError, "a malformed location of a chunk"),
        ({"transform_descriptors": ["zstd"]}, FormatError, "an extension changed when they were saved"),
    ],
)
def test_places_that_lead_elsewhere(folder: Path, info: dict[str, Any], error: type[MaskregError], fault: str) -> None:
    changed(folder, **info)
    with pytest.raises(error) as caught:
        open_checkpoint(folder)
    assert caught.value.message.startswith(f"{folder}/")
    assert fault in caught.value.message


def test_chunks_that_do_not_fill_a_tensor(folder: Path) -> None:
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())  # noqa: S301  # written by the test
    entry = metadata.state_dict_metadata["model.a.weight"]
    entry.chunks *= 2
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(FormatError, match=r"tensor model.a.weight: its parts have 48 of 24 elements"):
        open_checkpoint(folder)
    entry.chunks = []
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(FormatError, match=r"'model.a.weight' has no chunks"):
        open_checkpoint(folder)
    entry.size = "x"
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(FormatError, match=r"\.metadata: damaged, or of an unknown version: a malformed shape"):
        open_checkpoint(folder)


PICKLES = json.loads(Path(__file__).with_name("pickles.json").read_text())
"""What tests/checkpoint/pickles.py prints, by version and protocol."""


def plain(value: Any) -> Any:
    """A value in which records can be compared."""
    if isinstance(value, Record):
        name = type(value).__name__
        if name == "getattr":
            return "_MEM_FORMAT_ENCODING"
        return name if name == "_MEM_FORMAT_ENCODING" else (name, plain(value.args), plain(value.state))
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        return [(plain(key), plain(item)) for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("protocol", "2345")
@pytest.mark.parametrize("version", PICKLES)
def test_metadata_of_every_python_is_read_alike(version: str, protocol: str) -> None:
    read, expected = (
        plain(load_records(base64.b64decode(PICKLES[python][protocol_of]), NAMES, "x"))
        for python, protocol_of in ((version, protocol), ("3.12.1", "4"))
    )
    assert read == expected
    assert "_MEM_FORMAT_ENCODING" in str(read)


def test_metadata_of_something_else(folder: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(FormatError, match="no Metadata where one should be"):
        open_checkpoint(folder)
