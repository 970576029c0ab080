"""Merges and baselines, through the commands."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.flow.making import stored

REF = "toy-opd:v1"


def test_a_result_is_an_artifact_like_any_other(run: Run, artifact: str, two: str, tmp_path: Path) -> None:
    words = ("merge", REF, "two", "--method", "ties", "--weight", "two=0.5", "--set", "density=0.3")
    made = run(*words, "--name", "team/both:v1", "--json").json
    manifest = made["artifact"]["manifest"]
    assert manifest["parents"] == [artifact, two]
    settings = {"density": 0.3, "lambda": 1.0}
    recipe = {"kind": "merge", "method": "ties", "weights": [1.0, 0.5], "settings": settings}
    assert manifest["recipe"] == made["recipe"] == recipe
    assert made["artifact"]["card"] == {"method": "merge"}
    run("apply", "team/both:v1", "-o", tmp_path / "applied")
    # Written with the artifact or alone, a checkpoint is what applying gives.
    again = run(*words, "--name", "again", "-o", tmp_path / "written", "--json").json
    assert again["artifact"]["digest"] == made["artifact"]["digest"]
    out = run(*words, "-o", tmp_path / "alone", "-q").out
    assert out.strip() == str(tmp_path / "alone")
    assert stored(tmp_path / "applied") == stored(tmp_path / "written") == stored(tmp_path / "alone")
