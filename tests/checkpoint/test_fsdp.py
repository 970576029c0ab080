"""Files of single processes that do not make a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.errors import FormatError, NotFoundError
from tests.checkpoint.saving import save_torch
from tests.checkpoints import Tensor, bf16

TENSORS: dict[str, Tensor] = {"model.a.weight": bf16((6, 4)), "model.b.weight": bf16((3,))}


def ranks(folder: Path, *states: dict[str, Tensor], world: int = 2) -> Path:
    for rank, state in enumerate(states):
        save_torch(folder, state, f"model_world_size_{world}_rank_{rank}.pt")
    return folder


def test_a_tensor_that_every_process_has_is_there_once(tmp_path: Path) -> None:
    with open_checkpoint(ranks(tmp_path / "run", TENSORS, TENSORS)) as checkpoint:
        assert set(checkpoint.tensors) == set(TENSORS)
        assert checkpoint.read("model.a.weight", 0, 24).tobytes() == TENSORS["model.a.weight"][1].tobytes()


def test_parts_that_do_not_say_where_they_belong(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "run", TENSORS, {**TENSORS, "model.a.weight": bf16((6, 4), 9)})
    with pytest.raises(FormatError, match=r"rank_1\.pt: .* model\.a\.weight "):
        open_checkpoint(folder)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    other = {**TENSORS, "model.c.weight": bf16((2,))}
    with pytest.raises(FormatError, match=r"rank_1\.pt: .*rank_0\.pt, .*model\.c\.weight"):
        open_checkpoint(ranks(tmp_path / "names", TENSORS, other))
    wide = {**TENSORS, "model.b.weight": bf16((4,))}
    with pytest.raises(FormatError, match=r"rank_1\.pt: .* model\.b\.weight "):
        open_checkpoint(ranks(tmp_path / "forms", TENSORS, wide))
    folder = ranks(tmp_path / "sizes", TENSORS, TENSORS)
    ranks(folder, TENSORS, TENSORS, TENSORS, world=3)
    with pytest.raises(FormatError, match=r"\(2 .* 2, 3 .* 3\)"):
        open_checkpoint(folder)
    with pytest.raises(NotFoundError, match=r"(?m) 2 of 3 .* 1, 2$"):
        open_checkpoint(ranks(tmp_path / "missing", TENSORS, world=3))
