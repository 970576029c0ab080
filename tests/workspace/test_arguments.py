"""What use cases accept: paths, references, digests, open objects and results; and what they say of anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import maskreg
from maskreg.errors import BadRefError
from maskreg.workspace.storing import Stored
from tests.workspace.conftest import Lab


def test_an_artifact_is_meant_in_many_ways(ada: maskreg.Workspace, toy: Stored) -> None:
    ways: list[Any] = ["toy:v1", maskreg.Ref.parse("toy:v1"), f"toy:v1@{toy.digest}", toy.digest, str(toy.digest)]
    for artifact in (*ways, toy.artifact, toy):
        assert ada.find(artifact).digest == toy.digest
        assert maskreg.show(artifact, workspace=ada).digest == toy.digest
        assert maskreg.verify(artifact, workspace=ada).artifacts == 1


def test_a_checkpoint_is_meant_in_many_ways(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    assert maskreg.extract(str(lab.source), lab.target, workspace=ada).digest == toy.digest
    with maskreg.open_checkpoint(lab.source) as source, maskreg.open_checkpoint(lab.target) as target:
        assert maskreg.extract(source, target, workspace=ada).digest == toy.digest
        assert source.read("model.layers.0.mlp.up_proj.weight", 0, 4).shape == (4,)  # left open


@pytest.mark.parametrize(
    ("use_case", "accepted"),
    [
        (lambda ada: maskreg.load(5, workspace=ada), "pass an artifact: a reference, a digest"),  # type: ignore[arg-type]
        (lambda ada: maskreg.show(None, workspace=ada), "pass an artifact"),  # type: ignore[arg-type]
        (lambda ada: maskreg.pull(5, workspace=ada), "pass a reference: text such as"),  # type: ignore[arg-type]
        (lambda ada: maskreg.push(5, workspace=ada), "pass an artifact"),  # type: ignore[arg-type]
        (lambda ada: maskreg.tag("toy:v1", 5, workspace=ada), "pass a reference"),  # type: ignore[arg-type]
        (lambda ada: maskreg.extract(5, 6, workspace=ada), "pass a checkpoint: a path, a hub id"),  # type: ignore[arg-type]
        (lambda ada: maskreg.apply("toy:v1", 5, "out", workspace=ada), "pass a checkpoint"),  # type: ignore[arg-type]
        (lambda ada: maskreg.apply_(5, "toy:v1", workspace=ada), "pass a model: a torch module"),  # type: ignore[arg-type]
        (lambda ada: maskreg.gc(7, workspace=ada), "pass a timedelta"),  # type: ignore[arg-type]
        (lambda ada: maskreg.show("toy:v1", workspace="here"), "pass a Workspace"),  # type: ignore[arg-type]
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(
    ada: maskreg.Workspace, toy: Stored, use_case: Callable[[maskreg.Workspace], object], accepted: str
) -> None:
    with pytest.raises(maskreg.UsageError, match=accepted):
        use_case(ada)


@pytest.mark.parametrize("text", ["", "Two Words", "sha256:12", "a/b/c"])
def test_text_that_is_no_reference(ada: maskreg.Workspace, text: str) -> None:
    with pytest.raises(BadRefError) as caught:
        maskreg.load(text, workspace=ada)
    assert caught.value.hint


def test_an_artifact_without_a_name_is_named_first(ada: maskreg.Workspace, toy: Stored) -> None:
    for use_case in (
        lambda: maskreg.push(toy.digest, workspace=ada),
        lambda: maskreg.remove(toy.artifact, workspace=ada),
        lambda: maskreg.annotate(toy.digest, family="x", workspace=ada),
    ):
        with pytest.raises(maskreg.UsageError, match="without a name") as caught:
            use_case()
        assert "tag" in caught.value.hint


def test_hints_speak_to_python(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    (lab.folder / "out").mkdir()
    with pytest.raises(maskreg.CannotCreateError) as caught:
        maskreg.apply(toy, lab.source, lab.folder / "out", workspace=ada)
    assert "pass out=" in caught.value.hint


def test_notes_reach_the_workspace(lab: Lab) -> None:
    notes: list[str] = []
    settings = maskreg.Settings(home=lab.folder / "home", config_path=lab.folder / "config.toml")
    with maskreg.Workspace(settings, note=notes.append) as workspace:
        first = maskreg.extract(lab.source, lab.target, "toy", workspace=workspace)
        second = maskreg.extract(lab.target, lab.source, "toy", workspace=workspace)
    assert second.was == first.digest
    assert notes == [f"toy was {first.digest.short}; to have it back: maskreg tag toy@{first.digest} latest"]
