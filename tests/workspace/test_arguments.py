"""What use cases accept: paths, references, digests, open objects and results; and what they say of anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from maskreg_cli.next_step import next_step

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


def test_every_result_is_an_artifact_for_the_next_use_case(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    (tagged,) = maskreg.tag(toy, "best", workspace=ada)
    results: list[Any] = [
        tagged,
        maskreg.annotate(tagged, family="other", workspace=ada),
        maskreg.push(toy, workspace=ada),
        maskreg.export(toy, lab.folder / "file", workspace=ada),
        maskreg.import_(lab.folder / "file", "copy", workspace=ada),
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
        with pytest.raises(maskreg.NotFoundError, match="toy:v1 does not point to") as caught:
            use_case()
        assert next_step(caught.value) == "maskreg log toy:v1"
    assert maskreg.show("toy:v1", workspace=ada).card.family == "moved"
    maskreg.remove("toy:v1", workspace=ada)
    with pytest.raises(maskreg.NotFoundError, match="toy:v1 does not point to"):
        maskreg.restore(toy, workspace=ada)


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
        (lambda ada: maskreg.pull(5, workspace=ada), "pass an artifact"),  # type: ignore[arg-type]
        (lambda ada: maskreg.push(5, workspace=ada), "pass an artifact"),  # type: ignore[arg-type]
        (lambda ada: maskreg.tag("toy:v1", 5, workspace=ada), "pass a reference"),  # type: ignore[arg-type]
        (lambda ada: maskreg.extract(5, 6, workspace=ada), "pass a checkpoint: a path, a hub id"),  # type: ignore[arg-type]
        (lambda ada: maskreg.apply("toy:v1", 5, "out", workspace=ada), "pass a checkpoint"),  # type: ignore[arg-type]
        pytest.param(
            lambda ada: maskreg.apply_(5, "toy:v1", workspace=ada),  # type: ignore[arg-type]
            "pass a model: a torch module",
            marks=pytest.mark.torch,
        ),
        (lambda ada: maskreg.show("toy:v1", workspace="here"), "pass a Workspace"),  # type: ignore[arg-type]
        (lambda ada: maskreg.Workspace(5), "pass settings"),  # type: ignore[arg-type]
        (lambda ada: maskreg.Ref.parse(b"a"), "pass text such as"),  # type: ignore[arg-type]
        (lambda ada: maskreg.open_checkpoint(5), "pass a path, a URL or a hub id"),  # type: ignore[arg-type]
        (lambda ada: maskreg.open_checkpoint(b"toy"), "pass a path, a URL or a hub id"),  # type: ignore[arg-type]
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(
    ada: maskreg.Workspace, toy: Stored, use_case: Callable[[maskreg.Workspace], object], accepted: str
) -> None:
    with pytest.raises(maskreg.UsageError, match=accepted):
        use_case(ada)


SPEC = maskreg.BaselineSpec.of("random-global")


@pytest.mark.parametrize(
    ("use_case", "error", "message"),
    [
        (lambda ada, lab: maskreg.apply("toy:v1", out="", force=True, workspace=ada), "UsageError", "path .* is empty"),
        (lambda ada, lab: maskreg.baseline("toy:v1", SPEC, seed=3, workspace=ada), "UsageError", "no more parameters"),
        (lambda ada, lab: maskreg.import_(lab.source, workspace=ada), "UsageError", "is a directory; pass a file"),
        (lambda ada, lab: maskreg.import_("x" * 300, workspace=ada), "NotFoundError", "no such file"),
        (
            lambda ada, lab: maskreg.annotate("toy:v1", meta={"": "x"}, workspace=ada),
            "UsageError",
            "key of meta is empty",
        ),
        (lambda ada, lab: maskreg.extract(lab.source, lab.target, "sha256:1", workspace=ada), "BadRefError", "digest"),
        (
            lambda ada, lab: maskreg.remotes.add("a b", lab.folder, workspace=ada),
            "ConfigError",
            "the new remote: .*'a b'",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(
    ada: maskreg.Workspace,
    lab: Lab,
    toy: Stored,
    use_case: Callable[[maskreg.Workspace, Lab], object],
    error: str,
    message: str,
) -> None:
    with pytest.raises(getattr(maskreg.errors, error), match=message):
        use_case(ada, lab)


@pytest.mark.torch
def test_an_analysis_is_not_applied(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    analysis = maskreg.analyze(toy, lab.source, metrics=["sparsity"], workspace=ada)
    with pytest.raises(maskreg.NotFoundError, match="is an analysis: it holds figures") as caught:
        maskreg.apply(analysis, lab.source, lab.folder / "out", workspace=ada)
    assert caught.value.hint == "apply the artifact that was analyzed"


def test_a_closed_checkpoint_says_so(lab: Lab, ada: maskreg.Workspace) -> None:
    source = maskreg.open_checkpoint(lab.source)
    source.close()
    with pytest.raises(maskreg.UsageError, match="the checkpoint is closed"):
        maskreg.extract(source, lab.target, workspace=ada)


def test_a_missing_or_unknown_argument_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match=r"extract\(\) missing 1 required positional argument: 'target'"):
        maskreg.extract("source")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'sauce'"):
        maskreg.apply("toy", sauce="here")  # type: ignore[call-arg]


@pytest.mark.parametrize("text", ["", "Two Words", "sha256:12", "a/b/c"])
def test_text_that_is_no_reference(ada: maskreg.Workspace, text: str) -> None:
    with pytest.raises(BadRefError) as caught:
        maskreg.load(text, workspace=ada)
    assert next_step(caught.value)


def test_an_artifact_without_a_name_is_named_first(ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.remove(toy, workspace=ada)
    for use_case in (
        lambda: maskreg.push(toy.digest, workspace=ada),
        lambda: maskreg.remove(toy.artifact, workspace=ada),
        lambda: maskreg.annotate(toy.digest, family="x", workspace=ada),
    ):
        with pytest.raises(maskreg.UsageError, match="has no name in local, and this needs one") as caught:
            use_case()
        assert next_step(caught.value) == f"maskreg tag {toy.digest} NAME:TAG"


def test_errors_name_the_option_that_mends_the_request(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    (lab.folder / "out").mkdir()
    with pytest.raises(maskreg.CannotCreateError) as caught:
        maskreg.apply(toy, lab.source, lab.folder / "out", workspace=ada)
    assert caught.value.facts["options"] == {"force": True}


def test_notes_reach_the_workspace(lab: Lab) -> None:
    notes: list[str] = []
    settings = maskreg.Settings(home=lab.folder / "home", config_path=lab.folder / "config.toml")
    with maskreg.Workspace(settings, note=lambda said: notes.append(str(said))) as workspace:
        first = maskreg.extract(lab.source, lab.target, "toy", workspace=workspace)
        second = maskreg.extract(lab.target, lab.source, "toy", workspace=workspace)
    assert second.was == first.digest
    assert notes == [f"toy was {first.digest.short}"]
