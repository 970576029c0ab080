"""What an interactive session shows of results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import maskreg
from maskreg.workspace.storing import Stored

SHOWN: dict[str, Callable[[maskreg.Workspace], object]] = {
    "artifact": lambda ada: maskreg.load("toy:v1", workspace=ada),
    "mask": lambda ada: maskreg.load("toy:v1", workspace=ada).mask,
    "tensor": lambda ada: next(iter(maskreg.load("toy:v1", workspace=ada).mask.values())),
    "row": lambda ada: maskreg.load("toy:v1", workspace=ada).tensors[0],
    "manifest": lambda ada: maskreg.load("toy:v1", workspace=ada).manifest,
    "description": lambda ada: maskreg.show("toy:v1", workspace=ada),
    "comparison": lambda ada: maskreg.compare("toy:v1", "other", workspace=ada),
    "pairs": lambda ada: maskreg.compare("toy:v1", "other", workspace=ada).pairs,
    "three": lambda ada: maskreg.compare("toy:v1", "other", "third", workspace=ada),
    "list": lambda ada: maskreg.list(workspace=ada),
    "log": lambda ada: maskreg.log("toy:v1", workspace=ada),
    "doctor": lambda ada: maskreg.doctor(workspace=ada),
    "verify": lambda ada: maskreg.verify("toy:v1", workspace=ada),
}


@pytest.fixture
def masks(ada: maskreg.Workspace, toy: Stored) -> None:
    for seed, name in enumerate(("other", "third")):
        maskreg.baseline(toy, "random-global", seed=seed, name=name, workspace=ada)


@pytest.mark.usefixtures("masks")
@pytest.mark.parametrize("name", SHOWN)
def test_a_result_is_printed_in_a_few_lines(name: str, ada: maskreg.Workspace) -> None:
    text = repr(SHOWN[name](ada))
    assert len(text) < 1500
    assert " object at 0x" not in text


def test_a_mistyped_tensor_is_answered_with_the_nearest(ada: maskreg.Workspace, toy: Stored) -> None:
    mask = maskreg.load("toy:v1", workspace=ada).mask
    with pytest.raises(KeyError, match=r"model\.layers\.0\.mlp\.up_proj\.weight"):
        mask["model.layers.0.mlp.up_proj.weigt"]
    assert mask.get("nothing like it at all") is None
