"""A pair of checkpoints, and what a person has who extracted and shares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import maskreg
from maskreg.workspace.storing import Stored
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved

SOURCE: dict[str, Tensor] = {
    "model.embed_tokens.weight": bf16((40, 16), 1),
    "model.layers.0.self_attn.q_proj.weight": bf16((16, 16), 2),
    "model.layers.0.mlp.up_proj.weight": bf16((64, 16), 3),
}


@dataclass(frozen=True)
class Lab:
    """Two checkpoints, and a workspace for each user that a test asks for."""

    folder: Path
    source: Path
    target: Path

    def workspace(self, name: str) -> maskreg.Workspace:
        """The workspace of a person, with a home and a configuration file of its own."""
        folder = self.folder / name
        return maskreg.Workspace(maskreg.Settings(home=folder / "home", config_path=folder / "config.toml"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    target = {name: moved(tensor, 0.4, seed) for seed, (name, tensor) in enumerate(SOURCE.items())}
    return Lab(tmp_path, make_checkpoint(tmp_path / "source", SOURCE), make_checkpoint(tmp_path / "target", target))


@pytest.fixture
def ada(lab: Lab) -> Iterator[maskreg.Workspace]:
    """A workspace with the remote ``team``, a folder."""
    with lab.workspace("ada") as workspace:
        maskreg.remotes.add("team", lab.folder / "team", workspace=workspace)
        yield workspace


@pytest.fixture
def toy(lab: Lab, ada: maskreg.Workspace) -> Stored:
    """The artifact of the pair, called ``toy:v1`` in ada's registry."""
    return maskreg.extract(lab.source, lab.target, "toy:v1", family="toy", method="opd", workspace=ada)


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
