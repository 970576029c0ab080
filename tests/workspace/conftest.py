"""A pair of checkpoints, and what a person has who extracted and shares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    def states(self, count: int) -> list[Path]:
        """The source and what ``count`` steps made of it, each of which moves some coordinates."""
        tensors, paths = dict(SOURCE), [self.source]
        for step in range(1, count + 1):
            tensors = {name: moved(tensor, 0.05, 100 * step + n) for n, (name, tensor) in enumerate(tensors.items())}
            paths.append(make_checkpoint(self.folder / f"step-{step}", tensors))
        return paths


@dataclass(frozen=True)
class Run:
    """A run that ada publishes as ``toy/run`` on the remote ``team``, and that bob follows."""

    ada: maskreg.Workspace
    bob: maskreg.Workspace
    publisher: maskreg.Publisher
    steps: list[Path]
    out: Path

    def publish(self, *steps: int) -> maskreg.Published:
        """Publish states; returns the last link."""
        links = [self.publisher.publish(self.steps[number], meta={"step": str(number)}) for number in steps]
        assert links[-1] is not None
        return links[-1]

    def links(self) -> list[maskreg.Artifact]:
        """The artifacts that the tag has pointed to, the first first."""
        log = self.ada.local.history(self.publisher.ref)
        return [self.ada.local.artifact(entry.digest) for entry in log if entry.digest]

    def follower(self, out: Path | None = None, source: Path | None = None, **how: Any) -> maskreg.Follower:
        """What keeps bob's folder at the tag."""
        here = {"every_s": 0, "workspace": self.bob, **how}
        return maskreg.follow_folder(self.publisher.ref, out or self.out, source or self.steps[0], **here)

    def is_at(self, step: int, out: Path | None = None) -> bool:
        """Whether the folder's current checkpoint is that state, file by file."""
        return contents(((out or self.out) / "current").resolve()) == contents(self.steps[step])


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


@pytest.fixture
def bob(lab: Lab) -> Iterator[maskreg.Workspace]:
    """Another user of the remote ``team``."""
    with lab.workspace("bob") as workspace:
        maskreg.remotes.add("team", lab.folder / "team", workspace=workspace)
        yield workspace


@pytest.fixture
def run(lab: Lab, ada: maskreg.Workspace, bob: maskreg.Workspace) -> Iterator[Run]:
    """A run of five steps, of which nothing is published yet."""
    steps = lab.states(5)
    with maskreg.Publisher("toy/run", source=steps[0], remote="team", family="toy", workspace=ada) as publisher:
        yield Run(ada, bob, publisher, steps, lab.folder / "served")


def step(following: maskreg.Follower) -> maskreg.Followed:
    """A step that finds something to follow."""
    followed = following.step()
    assert followed is not None
    return followed


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
