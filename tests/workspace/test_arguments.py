"""What use cases accept: paths, references, digests, open objects and results; and what they say of anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.workspace.storing import Stored
from tests.workspace.conftest import Lab, contents


def test_an_artifact_is_meant_in_many_ways(ada: maskreg.Workspace, toy: Stored) -> None:
    ways: list[Any] = ["toy:v1", maskreg.Ref.parse("toy:v1"), f"toy:v1@{toy.digest}", toy.digest, str(toy.digest)]
    for artifact in (*ways, toy.artifact, toy):
        assert ada.find(artifact).digest == toy.digest
        assert maskreg.show(artifact, workspace=ada).digest == toy.digest
        assert maskreg.verify(artifact, workspace=ada).artifacts == 1


def test_every_result_is_an_artifact_for_the_next_use_case(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    (tagged,) = maskreg.tag(toy, "best", workspace=ada)
    results: list[Any] = [
        tagged,
        maskreg.annotate(tagged, family="other", workspace=ada),
        maskreg.push(toy, workspace=ada),
        maskreg.apply(toy, lab.source, lab.folder / "out", workspace=ada),
        *maskreg.search("toy", workspace=ada),
    ]
    for result in results:
        assert maskreg.show(result, workspace=ada).digest == toy.digest
        assert maskreg.log(result, workspace=ada)[-1].digest == toy.digest
    for result in (*results[:4], *maskreg.search(remote="team", workspace=ada)):
        assert maskreg.pull(result, remote="team", workspace=ada).digest == toy.digest
    (entry,) = maskreg.log(toy, workspace=ada)
    assert maskreg.load(entry, workspace=ada).digest == toy.digest
    removed = maskreg.remove(tagged, workspace=ada)
    assert maskreg.restore(removed, workspace=ada).ref == tagged.ref


def test_a_name_that_moved_meanwhile_is_left_alone(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.extract(lab.target, lab.source, "toy:v1", family="moved", workspace=ada)
    for use_case in (
        lambda: maskreg.annotate(toy, family="mine", workspace=ada),
        lambda: maskreg.remove(toy, workspace=ada),
    ):
        with pytest.raises(maskreg.NotFoundError, match=f"toy:v1 .*{toy.digest.short}") as caught:
            use_case()
        assert next_step(caught.value) == "maskreg log toy:v1"
    assert maskreg.show("toy:v1", workspace=ada).card.family == "moved"
    maskreg.remove("toy:v1", workspace=ada)
    with pytest.raises(maskreg.NotFoundError, match=f"toy:v1 .*{toy.digest.short}"):
        maskreg.restore(toy, workspace=ada)


def test_a_checkpoint_is_meant_in_many_ways(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    assert maskreg.extract(str(lab.source), lab.target, workspace=ada).digest == toy.digest
    with maskreg.open_checkpoint(lab.source) as source, maskreg.open_checkpoint(lab.target) as target:
        assert maskreg.extract(source, target, workspace=ada).digest == toy.digest
        assert source.read("model.layers.0.mlp.up_proj.weight", 0, 4).shape == (4,)  # left open


Refused = Callable[[maskreg.Workspace], object]
REFUSED: dict[str, Refused] = {
    "pass an artifact: a reference": lambda ada: maskreg.load(5, workspace=ada),  # type: ignore[arg-type]
    "pass a reference": lambda ada: maskreg.tag("toy:v1", 5, workspace=ada),  # type: ignore[arg-type]
    "pass a checkpoint: a path": lambda ada: maskreg.extract(5, 6, workspace=ada),  # type: ignore[arg-type]
    "pass a Workspace": lambda ada: maskreg.show("toy:v1", workspace="here"),  # type: ignore[arg-type]
    "pass settings": lambda ada: maskreg.Workspace(5),  # type: ignore[arg-type]
    "pass text such as": lambda ada: maskreg.Ref.parse(b"a"),  # type: ignore[arg-type]
    "pass a path, a URL or a hub id": lambda ada: maskreg.open_checkpoint(b"toy"),  # type: ignore[arg-type]
    "path .* is empty": lambda ada: maskreg.apply("toy:v1", out="", force=True, workspace=ada),
    "no more parameters": lambda ada: maskreg.baseline(
        "toy:v1", maskreg.BaselineSpec.of("random-global"), seed=3, workspace=ada
    ),
}
"""What use cases refuse, by what they say in place of it."""


@pytest.mark.parametrize("accepted", REFUSED)
def test_anything_else_is_refused_with_what_is_accepted(accepted: str, ada: maskreg.Workspace, toy: Stored) -> None:
    with pytest.raises(maskreg.UsageError, match=accepted):
        REFUSED[accepted](ada)


def test_an_artifact_without_a_name_is_named_first(ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.remove(toy, workspace=ada)
    for use_case in (
        lambda: maskreg.push(toy.digest, workspace=ada),
        lambda: maskreg.remove(toy.artifact, workspace=ada),
        lambda: maskreg.annotate(toy.digest, family="x", workspace=ada),
    ):
        with pytest.raises(maskreg.UsageError, match=toy.digest.short) as caught:
            use_case()
        assert next_step(caught.value) == f"maskreg tag {toy.digest} NAME:TAG"


@pytest.mark.parametrize(
    ("verb", "options", "error"),
    [
        ("apply", {"devise": "cpu"}, TypeError),
        ("baseline", {"kind": "random-global", "seed": 1.5}, maskreg.UsageError),
        ("baseline", {"kind": "random-global", "sed": 1}, TypeError),
        ("compare", {"by": "nothing"}, maskreg.UsageError),
        ("compare", {"start": "maybe"}, maskreg.UsageError),
        ("convert_to", {"to": "safetensors-mask", "out": "new", "sorce": "x"}, TypeError),
        ("report", {"out": "new.html", "plots": "new.html"}, maskreg.UsageError),
        ("report", {"out": "new.html", "stripes": True}, TypeError),
    ],
)
def test_options_that_mean_nothing_are_refused(
    ada: maskreg.Workspace,
    toy: Stored,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    options: Any,
    error: type[Exception],
) -> None:
    masks = ["toy:v1", "other"] if verb == "compare" else ["toy:v1"]
    if len(masks) > 1:
        maskreg.baseline(toy, "random-global", "other", workspace=ada)
    monkeypatch.chdir(ada.root)
    before = contents(ada.root).keys()
    with pytest.raises(error):
        getattr(maskreg, verb)(*masks, **options, workspace=ada)
    assert contents(ada.root).keys() == before
