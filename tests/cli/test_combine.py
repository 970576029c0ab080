"""Masks of masks, through the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.demo import DEMO

REF = "toy-opd:v1"


@pytest.fixture
def masks(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> list[str]:
    """The digests of ``toy-opd:v1``, ``two`` and ``three``."""
    found = [artifact]
    for seed, name in ((50, "two"), (90, "three")):
        target = {n: moved(t, 0.5, seed + i) for i, (n, t) in enumerate(tensors().items())}
        path = make_checkpoint(tmp_path / name, target)
        found.append(str(run("extract", pair[0], path, "--name", name, "--mask-only", "--json").json["digest"]))
    return found


def nnz(run: Run, ref: str) -> int:
    return int(run("show", ref, "--json").json["manifest"]["totals"]["nnz"])


def test_counts_add_up_on_trained_models(run: Run) -> None:
    for name in ("target", "target-seed1"):
        run("extract", DEMO / "source", DEMO / name, "--name", name, "--mask-only")
    for how in ("and", "or"):
        run("combine", "target", "target-seed1", "--how", how, "--name", how)
    assert (nnz(run, "target"), nnz(run, "target-seed1")) == (459_566, 457_275)
    assert (nnz(run, "and"), nnz(run, "or")) == (423_646, 493_195)


def test_the_same_again_keeps_its_card(run: Run, masks: list[str]) -> None:
    words = ("combine", REF, "two", "--how", "and", "--name", "both:v1")
    run(*words, "--description", "moved by both")
    run("annotate", "both:v1", "--license", "mit")
    assert run(*words, "--json").json["card"] == {"description": "moved by both", "license": "mit"}


def test_the_family_is_that_of_all(run: Run, masks: list[str]) -> None:
    run("combine", REF, "two", "--how", "and", "--name", "mixed")
    assert run("show", "mixed", "--json").json["card"] == {}
    run("annotate", "two", "--family", "toy")
    run("combine", REF, "two", "--how", "and", "--name", "both")
    assert run("show", "both", "--json").json["card"] == {"family": "toy"}
