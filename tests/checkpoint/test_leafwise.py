"""Reading a span leaf by leaf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.ahead import LeafReader
from maskreg.checkpoint.safetensors import SafetensorsCheckpoint
from maskreg.digest import LEAF_NUMEL
from tests.checkpoints import write_safetensors

NUMEL = 2 * LEAF_NUMEL + 5
BITS = np.arange(NUMEL).astype(np.uint32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "model.safetensors", {"w": ("F32", BITS), "empty": ("F32", BITS[:0])})


@pytest.mark.parametrize("start", [0, LEAF_NUMEL, 2 * LEAF_NUMEL])
@pytest.mark.parametrize("given", [True, False])
def test_leaves_come_one_after_another_into_one_piece_of_memory(path: Path, start: int, given: bool) -> None:
    memory = np.zeros(4 * (NUMEL - start), np.uint8) if given else None
    with open_checkpoint(path) as checkpoint:
        reader = LeafReader(checkpoint, "w", start, NUMEL, memory)
        leaves = [(first, values.copy()) for first, values in reader.leaves()]
    assert [first for first, _ in leaves] == list(range(start, NUMEL, LEAF_NUMEL))
    assert np.array_equal(np.concatenate([values for _, values in leaves]), BITS[start:])
    assert np.array_equal(reader.values, BITS[start:])
    assert memory is None or np.shares_memory(reader.values, memory)


def test_an_empty_tensor_has_no_leaves(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        reader = LeafReader(checkpoint, "empty", 0, 0)
        assert list(reader.leaves()) == []
        assert reader.values.size == 0


def test_what_a_format_has_in_memory_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: object, name: str, start: int, stop: int, into: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        return BITS[start:stop]

    with open_checkpoint(path) as checkpoint:
        monkeypatch.setattr(SafetensorsCheckpoint, "read", read)
        reader = LeafReader(checkpoint, "w", 0, NUMEL)
        assert sum(1 for _ in reader.leaves()) == 3
    assert np.array_equal(reader.values, BITS)
    assert not np.shares_memory(reader.values, BITS)
