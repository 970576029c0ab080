"""A pair of checkpoints with everything that a format can stumble over, and its artifact."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import maskreg
from maskreg.workspace.workspace import Named
from tests.checkpoints import Tensor, bf16, f16, f32, make_checkpoint, moved

TALL = "model.layers.1.mlp.up_proj.weight"
"""A tensor of two blocks."""

SOURCE: dict[str, Tensor] = {
    "model.embed_tokens.weight": bf16((40, 16), 1),
    "lm_head.weight": bf16((40, 16), 1),  # tied
    "model.layers.0.self_attn.q_proj.weight": bf16((16, 16), 2),
    "model.layers.0.mlp.experts.up_proj": bf16((3, 20, 16), 3),
    "model.layers.0.norm.weight": bf16((16,), 4),
    TALL: bf16((4097, 1025), 5),
    "model.half.weight": f16((30, 3), 6),
    "model.router.bias": f32((17,), 7),
    "model.scalar": bf16((), 8),
    "model.empty": bf16((0, 16), 9),
    "model.still.weight": bf16((16, 16), 10),
}


def target_of(source: dict[str, Tensor]) -> dict[str, Tensor]:
    """The source after training: an eighth of it moved, one zero changed its sign, and one tensor stayed."""
    target = {name: moved(tensor, 0.125, 7) for name, tensor in source.items() if name != "model.scalar"}
    target["model.scalar"] = ("BF16", np.array(0x4049, np.uint16))
    target["model.still.weight"] = source["model.still.weight"]
    source["model.layers.0.norm.weight"][1][3], target["model.layers.0.norm.weight"][1][3] = 0x0000, 0x8000
    return target


@dataclass(frozen=True)
class Lab:
    """Two checkpoints, an artifact of them called ``toy:v1``, and a workspace that has it."""

    folder: Path
    source: Path
    target: Path
    space: maskreg.Workspace
    toy: Named


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints and a registry that has the artifact, to copy."""
    folder = tmp_path_factory.mktemp("made")
    files = {"config.json": b'{"hidden_size": 16}\n', "tokenizer.json": b"{}\n"}
    source = make_checkpoint(folder / "source", SOURCE, files={**files, "old.json": b"[]"})
    changed = {"config.json": b'{"hidden_size": 16, "step": 1}\n', "generation_config.json": b'{"top_k": 1}\n'}
    target = make_checkpoint(folder / "target", target_of(SOURCE), files={**files, **changed})
    with maskreg.Workspace(maskreg.Settings(home=folder / "home", config_path=folder / "config.toml")) as space:
        maskreg.extract(source, target, "toy:v1", reversible=True, workspace=space)
    return folder


@pytest.fixture
def lab(made: Path, tmp_path: Path) -> Iterator[Lab]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    settings = maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")
    with maskreg.Workspace(settings) as space:
        yield Lab(tmp_path, tmp_path / "source", tmp_path / "target", space, maskreg.show("toy:v1", workspace=space))
