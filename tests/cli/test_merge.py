"""Merges, through the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import maskreg
from maskreg.flow.merge.methods import METHODS
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.demo import DEMO
from tests.flow.making import stored

REF = "toy-opd:v1"


@pytest.fixture
def two(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> list[str]:
    """The digests of ``toy-opd:v1`` and ``two``."""
    target = {n: moved(t, 0.5, 50 + i) for i, (n, t) in enumerate(tensors().items())}
    path = make_checkpoint(tmp_path / "target-two", target)
    return [artifact, str(run("extract", pair[0], path, "--name", "two", "--json").json["digest"])]


def test_the_help_names_every_method_and_its_settings(run: Run) -> None:
    text = run("merge", "--help").out
    assert all(f"\n  {name} " in text for name in METHODS)


def test_a_result_is_an_artifact_like_any_other(run: Run, two: list[str], tmp_path: Path) -> None:
    words = ("merge", REF, "two", "--method", "ties", "--weight", "two=0.5", "--set", "density=0.3")
    made = run(*words, "--name", "team/both:v1", "--json").json
    manifest = made["artifact"]["manifest"]
    assert manifest["parents"] == two
    recipe = {
        "kind": "merge",
        "method": "ties",
        "weights": [1.0, 0.5],
        "settings": {"density": 0.3, "lambda": 1.0},
    }
    assert manifest["recipe"] == made["recipe"] == recipe
    assert (made["operands"], made["out"]) == ([REF, "two"], None)
    assert made["artifact"]["card"] == {"method": "merge"}
    text = run("show", "team/both:v1").out
    assert "merge, method ties" in text
    assert run("verify", "team/both:v1", "--json").json["ok"]
    run("remote", "add", "lab", tmp_path / "lab", "--default")
    run("push", "team/both:v1")
    run("rm", "team/both:v1", "-y")
    run("pull", "team/both:v1")
    run("apply", "team/both:v1", "-o", tmp_path / "applied")
    # The same by a recipe; and written alone, it is what applying gives.
    path = tmp_path / "merge.yaml"
    path.write_text("method: ties\nartifacts:\n  - toy-opd:v1\n  - {ref: two, weight: 0.5}\nsettings: {density: 0.3}\n")
    again = run("merge", "--recipe", path, "--name", "again", "-o", tmp_path / "written", "--json").json
    assert again["artifact"]["digest"] == made["artifact"]["digest"]
    out = run("merge", "--recipe", path, "-o", tmp_path / "alone", "-q").out
    assert out.strip() == str(tmp_path / "alone")
    assert stored(tmp_path / "applied") == stored(tmp_path / "written") == stored(tmp_path / "alone")


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(run: Run, two: list[str]) -> None:
    before = run("list", "-q").out.split()
    words = ("merge", REF, "two", "--method", "union")
    text = run(*words, "--dry-run").out
    lines = text.splitlines()
    assert lines[0] == "union of 2 artifacts: shares of the coordinates that moved"
    assert lines[2].split() == ["role", "coordinates", REF, "two", "any", "conflicts", "opposite", "signs", "result"]
    assert [line.split()[0] for line in lines[3:]] == ["ffn", "embedding", "lm_head", "attention", "all"]
    report = run(*words, "--dry-run", "--json").json["report"]
    assert run("list", "-q").out.split() == before
    made = run(*words, "--name", "both", "--json").json
    assert report == made["report"]
    assert report["whole"]["after"] == made["artifact"]["manifest"]["totals"]["nnz"]
    roles = {role: group["nnz"] for role, group in made["artifact"]["manifest"]["totals"]["roles"].items()}
    assert {role: figures["after"] for role, figures in report["roles"].items()} == roles
    assert len(run("list", "-q").out.split()) == len(before) + 1


def test_an_identity_merge_of_a_trained_model_gives_its_bits(run: Run, tmp_path: Path) -> None:
    for name in ("target", "target-seed1"):
        run("extract", DEMO / "source", DEMO / name, "--name", name)
    run("merge", "target", "--method", "linear", "-o", tmp_path / "same")
    assert stored(tmp_path / "same") == stored(DEMO / "target")
    whole = run("merge", "target", "target-seed1", "--method", "consensus", "--dry-run", "--json").json["report"][
        "whole"
    ]
    assert (whole["before"], whole["union"], whole["conflicts"]) == ([459_566, 457_275], 493_195, 423_646)


def test_weights_in_python(run: Run, two: list[str], tmp_path: Path) -> None:
    made = [
        maskreg.merge([REF, "two"], method="task-arithmetic", weights=weights)
        for weights in ([1, -0.5], {"two": -0.5}, {two[1]: -0.5, f"{REF}@{two[0]}": 1})
    ]
    assert len({merged.digest for merged in made}) == 1
    assert made[0].ref is None
    assert maskreg.show(made[0]).manifest.recipe == made[0].recipe
    assert json.loads(json.dumps(made[0].to_json()))["report"]["whole"]["numel"] == made[0].report.whole.numel
    with pytest.raises(maskreg.UsageError, match="3 weights for 2"):
        maskreg.merge([REF, "two"], method="linear", weights=[1, 1, 1])


MERGEKIT = """
merge_method: dare_ties
base_model: {source}
models:
  - model: {source}
  - model: {first}
    parameters:
      weight:
        - {{filter: mlp, value: [0, 1]}}
        - value: 0.5
      density: 0.4
  - model: {second}
parameters: {{weight: 0.3, density: [0.4, 0.6], lambda: 0.9, int8_mask: true}}
dtype: bfloat16
"""
OURS = """
method: dare
artifacts:
  - ref: toy-opd:v1
    weight: [{filter: mlp, value: [0, 1]}, {value: 0.5}]
    settings: {density: 0.4}
  - {ref: two, weight: 0.3}
settings: {density: [0.4, 0.6], lambda: 0.9, rescale: l1, sign: agree}
"""


def test_a_recipe_of_mergekit_is_that_of_ours(
    run: Run, two: list[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    ours.write_text(OURS)
    merge = ("merge", "--json", "--name", "x", "--recipe")
    expected = run(*merge, ours).json["artifact"]["digest"]
    for first, second in ((REF, "two"), (pair[1], tmp_path / "target-two")):
        theirs.write_text(MERGEKIT.format(source=pair[0], first=first, second=second))
        made = run(*merge, theirs).json
        assert made["artifact"]["digest"] == expected
        assert made["artifact"]["manifest"]["parents"] == two
    assert any(two[0][:12] in note for note in made["notes"])
    assert "maskreg extract" in run("merge", "--recipe", theirs, "--dry-run", status=2).err


def test_a_linear_recipe_of_mergekit_without_a_base_starts_from_its_first_model(
    run: Run, two: list[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    path, source = tmp_path / "linear.yaml", pair[0]
    path.write_text(
        f"merge_method: linear\nmodels: [{{model: {source}}}, {{model: {pair[1]}}}]\nparameters: {{weight: 1}}"
    )
    run("merge", "--recipe", path, "-o", tmp_path / "both")
    run("merge", REF, "--method", "task-arithmetic", "--weight", f"{REF}=0.5", "-o", tmp_path / "half")
    assert stored(tmp_path / "both") == stored(tmp_path / "half")
    path.write_text(path.read_text().replace(str(pair[1]), REF))
    assert "base_model" in run("merge", "--recipe", path, "-o", tmp_path / "none", status=2).err
    run("merge", "--recipe", path, "-o", tmp_path / "again", "--source", source)
    assert stored(tmp_path / "again") == stored(tmp_path / "half")
