"""From one person's checkpoints to another's, with nothing but ``import maskreg``."""

from __future__ import annotations

import pytest

import maskreg
from maskreg.bucket import on_disk
from tests.workspace.conftest import Lab, contents


def test_from_extraction_to_a_bit_exact_copy_elsewhere(lab: Lab, ada: maskreg.Workspace) -> None:
    stored = maskreg.extract(lab.source, lab.target, workspace=ada)
    assert stored.ref is None
    maskreg.tag(stored, "team/toy:v1", workspace=ada)
    maskreg.annotate("team/toy:v1", family="toy", meta={"seed": "7"}, workspace=ada)
    pushed = maskreg.push("team/toy:v1", workspace=ada)
    assert (pushed.digest, pushed.remote, pushed.reused_bytes) == (stored.digest, "team", 0)

    with lab.workspace("ben") as ben:
        maskreg.remotes.add("team", lab.folder / "team", workspace=ben)
        (entry,) = maskreg.search("toy", remote="team", workspace=ben)
        artifact = maskreg.pull(entry.ref, workspace=ben)
        assert artifact.digest == stored.digest
        applied = maskreg.apply(artifact, lab.source, lab.folder / "copy", workspace=ben)
        assert contents(on_disk(applied.out, "a test")) == contents(lab.target)
        assert maskreg.verify(artifact, workspace=ben).ok
        assert maskreg.show("team/toy:v1", workspace=ben).card == maskreg.Card(family="toy", meta={"seed": "7"})


@pytest.mark.torch
def test_in_memory(lab: Lab, ada: maskreg.Workspace) -> None:
    import torch
    from safetensors.torch import load_file

    maskreg.extract(lab.source, lab.target, "toy", workspace=ada)
    state = load_file(lab.source / "model.safetensors")
    maskreg.apply_(state, "toy", workspace=ada)
    target = load_file(lab.target / "model.safetensors")
    assert {name: tensor.view(torch.int16).tolist() for name, tensor in state.items()} == {
        name: tensor.view(torch.int16).tolist() for name, tensor in target.items()
    }
