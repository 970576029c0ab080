"""Distributed checkpoints whose metadata is wrong, or leads elsewhere."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.dcp import NAMES
from maskreg.errors import DataError, FormatError, MaskregError, NotFoundError
from tests.checkpoint.saving import save_dcp
from tests.checkpoints import bf16

TENSORS = {"model.a.weight": bf16((6, 4)), "model.b.weight": bf16((3,))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_dcp(tmp_path / "run", TENSORS)


Change = Callable[[Any], None]


def at(**info: Any) -> Change:
    """Change what the metadata says of every chunk's place."""

    def change(metadata: Any) -> None:
        metadata.storage_data = {index: replace(place, **info) for index, place in metadata.storage_data.items()}

    return change


def of(**info: Any) -> Change:
    """Change what the metadata says of a tensor."""
    return lambda metadata: vars(metadata.state_dict_metadata["model.a.weight"]).update(info)


def twice(metadata: Any) -> None:
    metadata.state_dict_metadata["model.a.weight"].chunks *= 2


@pytest.mark.parametrize(
    ("change", "error", "fault"),
    [
        (at(relative_path="../outside.distcp"), FormatError, ".metadata: damaged, or of an unknown version: not the"),
        (at(relative_path="/etc/passwd"), FormatError, "not the plain name of a file: '/etc/passwd'"),
        (at(relative_path="__9_0.distcp"), NotFoundError, "__9_0.distcp: a file of the checkpoint is missing"),
        (at(offset=1 << 40), DataError, "__0_0.distcp: the file is cut short: it has"),
        (at(offset=-5), DataError, "__0_0.distcp: "),
        (at(offset=3), FormatError, "__0_0.distcp: not an archive of torch.save, or damaged"),
        (at(length="x"), FormatError, "a malformed location of a chunk"),
        (at(transform_descriptors=["zstd"]), FormatError, "an extension changed when they were saved"),
        (twice, FormatError, "tensor model.a.weight: its parts have 48 of 24 elements"),
        (of(chunks=[]), FormatError, "'model.a.weight' has no chunks"),
        (of(size="x"), FormatError, ".metadata: damaged, or of an unknown version: a malformed shape"),
    ],
)
def test_places_and_tensors_that_are_none(folder: Path, change: Change, error: type[MaskregError], fault: str) -> None:
    metadata = pickle.loads((folder / ".metadata").read_bytes())  # noqa: S301  # written by the test
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(error) as caught:
        open_checkpoint(folder)
    assert caught.value.message.startswith(str(folder))
    assert fault in caught.value.message


def test_what_pythons_name_in_metadata() -> None:
    """By module and name; 3.11.0 to 3.11.3 pickle a member of an enum by getattr."""
    metadata = "torch.distributed.checkpoint.metadata"
    for name in ("builtins getattr", "__builtin__ getattr", "pathlib PosixPath", "pathlib._local PosixPath"):
        assert NAMES.fullmatch(name)
    for name in ("builtins eval", "torch.load load", f"{metadata} os", "os system", "torch os.system"):
        assert not NAMES.fullmatch(name)


def test_metadata_of_something_else(folder: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(FormatError, match="Metadata"):
        open_checkpoint(folder)
