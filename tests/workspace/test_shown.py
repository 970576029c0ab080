"""What an interactive session and a notebook show of results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import maskreg
from maskreg.workspace.storing import Stored
from maskreg.workspace.verbs.search import Listing

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


@pytest.mark.usefixtures("masks")
@pytest.mark.parametrize("name", ["artifact", "mask", "comparison", "list"])
def test_a_notebook_shows_a_table(name: str, ada: maskreg.Workspace) -> None:
    shown = SHOWN[name](ada)._repr_html_()  # type: ignore[attr-defined]
    assert "<table" in shown
    assert "<script" not in shown


@pytest.mark.usefixtures("masks")
def test_a_pair_shows_its_verdict(ada: maskreg.Workspace) -> None:
    (pair,) = maskreg.compare("toy:v1", "other", workspace=ada).pairs
    assert pair.verdict.sentence in repr(pair)
    assert pair.verdict.outcome.value in repr(pair) or pair.verdict.sentence in pair._repr_html_()


def test_names_from_outside_are_escaped(ada: maskreg.Workspace, toy: Stored) -> None:
    (entry,) = maskreg.list(workspace=ada)
    hostile = Listing([type(entry)(**{**vars(entry), "method": "<script>"})])
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;script&gt;" in hostile._repr_html_()


def test_an_open_artifact_says_what_it_is(ada: maskreg.Workspace, toy: Stored) -> None:
    artifact = maskreg.load("toy:v1", workspace=ada)
    assert {"name", "density", "size", "source"} <= set(dir(artifact))
    assert (artifact.name, artifact.size) == ("toy:v1", artifact.manifest.size)
    assert 0.3 < artifact.density < 0.5
    assert maskreg.load(artifact.digest, workspace=ada).name == ""
    assert maskreg.show(artifact, workspace=ada).name == "toy:v1"


def test_a_mistyped_tensor_is_answered_with_the_nearest(ada: maskreg.Workspace, toy: Stored) -> None:
    mask = maskreg.load("toy:v1", workspace=ada).mask
    with pytest.raises(KeyError, match=r"similar: model\.layers\.0\.mlp\.up_proj\.weight"):
        mask["model.layers.0.mlp.up_proj.weigt"]
    assert mask.get("nothing like it at all") is None
