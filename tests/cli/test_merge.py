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


def test_a_mask_restricts_an_update(run: Run, two: list[str]) -> None:
    run("combine", REF, "two", "--how", "and", "--name", "shared")
    made = run("merge", REF, "--method", "restrict", "--set", "mask=shared", "--name", "less", "--json").json
    shared = run("show", "shared", "--json").json["manifest"]["totals"]["nnz"]
    assert made["artifact"]["manifest"]["totals"]["nnz"] == shared
    assert len(made["artifact"]["manifest"]["parents"]) == 2


def test_what_is_refused(run: Run, two: list[str], pair: tuple[Path, Path], tmp_path: Path) -> None:
    merge = ("merge", REF, "two")
    assert "--name" in run(*merge, "--method", "linear", status=2).err
    assert "no merge method" in run(*merge, "--name", "x", status=2).err
    assert "unknown merge method" in run(*merge, "--method", "mean", "--name", "x", status=2).err
    assert "nothing to merge" in run("merge", "--method", "linear", "--name", "x", status=2).err
    assert (
        "a weight for missing"
        in run(*merge, "--method", "linear", "--weight", "missing=1", "--name", "x", status=2).err
    )
    run(*merge, "--method", "linear", "--weight", "two=nan", "--name", "x", status=2)
    run(*merge, "--method", "linear", "--weight", "two", "--name", "x", status=2)
    assert (
        "twice"
        in run(*merge, "--method", "ties", "--set", "density=1", "--set", "density=0", "--name", "x", status=2).err
    )
    assert "a dry run makes nothing" in run(*merge, "--method", "linear", "--name", "x", "--dry-run", status=2).err
    run("merge", REF, "missing", "--method", "linear", "--name", "x", status=66)
    (tmp_path / "here").mkdir()
    assert "exists already" in run(*merge, "--method", "linear", "-o", tmp_path / "here", status=73).err
    run(*merge, "--method", "linear", "--name", "x", "--source", pair[1], status=65)
    source = {n: moved(t, 0.1, 7) for n, t in tensors().items()}
    other = [make_checkpoint(tmp_path / n, t) for n, t in (("s", source), ("t", tensors()))]
    run("extract", *other, "--name", "foreign")
    assert "different sources" in run("merge", REF, "foreign", "--method", "linear", "--name", "x", status=65).err
    run("extract", *pair, "--name", "masked", "--mask-only")
    assert "is a mask" in run("merge", "masked", "--method", "linear", "--name", "x", status=66).err
    assert run("list", "-q").out.count("x\n") == 0


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("method: linear\nartifacts: [", 65, "not YAML"),
        ("- linear\n", 65, "not a recipe"),
        ("method: linear\nartifacts: [toy-opd:v1]\nweights: [1]\n", 65, "unknown key 'weights'"),
        ("method: linear\nartifacts: []\n", 65, "missing or of another kind"),
        ("artifacts: [toy-opd:v1]\n", 65, "missing or of another kind"),
        ("method: linear\nartifacts: [{weight: 1}]\n", 65, "neither a reference"),
        ("method: linear\nartifacts: [{ref: toy-opd:v1, scale: 1}]\n", 65, "unknown key 'scale'"),
        ("method: linear\nartifacts: [{ref: toy-opd:v1, weight: much}]\n", 2, "the weight of toy-opd:v1 is"),
        ("method: linear\nartifacts: [toy-opd:v1]\nsettings: {density: 1}\n", 2, "has no setting"),
        ("method: linear\nartifacts: [{ref: toy-opd:v1, weight: [{filter: zzzz, value: 1}, {value: 2}]}]\n", 2, "zzzz"),
        ("merge_method: ties\nmodels: [{model: a}]\n", 65, "needs base_model"),
        ("merge_method: nuslerp\nmodels: [{model: a}]\n", 65, "nuslerp"),
        ("method: linear\nartifacts: [missing]\n", 66, "missing"),
    ],
)
def test_recipes_that_cannot_be_followed(
    run: Run, artifact: str, tmp_path: Path, text: str, status: int, said: str
) -> None:
    path = tmp_path / "merge.yaml"
    path.write_text(text)
    assert said in run("merge", "--recipe", path, "--name", "x", status=status).err
    assert "leave them out" in run("merge", REF, "--recipe", path, "--name", "x", status=2).err


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


@pytest.mark.parametrize("name", [(), ("--name", "merged")])
def test_files_that_are_not_copied_and_files_that_stay_are_said(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path, name: tuple[str, ...]
) -> None:
    source, out = pair[0], tmp_path / "out"
    (source / "pytorch_model.bin").write_bytes(b"other weights")
    line = ("merge", REF, "--method", "linear", "--source", source, "-o", out, *name, "--force")
    run(*line)
    (out / "own.txt").write_text("mine")
    done = run(*line)
    assert "not copied: pytorch_model.bin\n" in done.err
    assert f"kept in {out}: own.txt\n" in done.err
    document = run(*line, "--json").json
    assert (document["skipped_files"], document["kept_files"]) == (["pytorch_model.bin"], ["own.txt"])


def test_an_artifact_that_is_named_twice_is_refused(run: Run, two: list[str]) -> None:
    line = ("merge", REF, "two", REF, "--method", "ties", "--weight", f"{REF}=2", "--dry-run")
    assert f"{REF} is named twice" in run(*line, status=2).err
    run("tag", "two", "best")
    assert (
        "two and two:best are one artifact"
        in run("merge", "two", "two:best", "--method", "ram", "--dry-run", status=2).err
    )


def test_a_recipe_is_text_and_read_as_it_is_written(run: Run, two: list[str], tmp_path: Path) -> None:
    path = tmp_path / "merge.yaml"

    def refused(text: str, status: int) -> str:
        path.write_text(text)
        return run("merge", "--recipe", path, "--dry-run", status=status).err

    start = f"method: linear\nartifacts: ['{REF}', "
    assert "a key that appears twice" in refused(f"{start}two]\nmethod: ties\n", 65)
    assert "a key that appears twice" in refused(start + "{ref: two, weight: 1, weight: 3}]\n", 65)
    assert "the weight of two is '2001-99-99'" in refused(start + "{ref: two, weight: 2001-99-99}]\n", 2)
    assert "an alias" in refused(start + "&a [x, x], [*a, *a]]\n", 65)
    assert "nested too deep" in refused(start + "[" * 5000, 65)
    assert "the mask is ['two']; it must be one" in refused(start[:-2] + "]\nsettings: {mask: [two]}\n", 2)
    digits = "9" * 5000
    assert "must be a whole number" in refused(f"method: dare\nartifacts: [two]\nsettings: {{seed: {digits}}}\n", 2)


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
