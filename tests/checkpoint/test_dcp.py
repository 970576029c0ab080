"""Distributed checkpoints whose metadata is wrong, or leads elsewhere."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.dcp import NAMES
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


def test_what_pythons_name_in_metadata() -> None:
    """By module and name; 3.11.0 to 3.11.3 pickle a member of an enum by getattr."""
    metadata = "torch.distributed.checkpoint.metadata"
    for name in ("builtins getattr", "__builtin__ getattr", "pathlib PosixPath", "pathlib._local PosixPath"):
        assert NAMES.fullmatch(name)
    for name in ("builtins eval", "torch.load load", f"{metadata} os", "os system", "torch os.system"):
        assert not NAMES.fullmatch(name)


def test_metadata_of_something_else(folder: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(FormatError, match="no Metadata where one should be"):
        open_checkpoint(folder)
