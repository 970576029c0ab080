"""Masks of masks, through the command."""

from __future__ import annotations

from pathlib import Path

import pytest

import maskreg.flow.masks
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
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


def test_a_result_is_an_artifact_like_any_other(run: Run, masks: list[str], tmp_path: Path) -> None:
    made = run("combine", REF, "two", "three", "--at-least", "2", "--name", "team/two-of-three:v1", "--json").json
    assert made["manifest"]["parents"] == masks
    assert made["manifest"]["recipe"] == {"kind": "at-least", "k": 2, "of": 3}
    text = run("show", "team/two-of-three:v1").out
    assert "recipe       at-least, k 2, of 3" in text
    assert "energy" not in text
    assert all(digest in text for digest in masks)
    assert "team/two-of-three:v1" in run("list", "-q").out
    assert run("verify", "team/two-of-three:v1", "--json").json["ok"]
    run("remote", "add", "lab", tmp_path / "lab", "--default")
    run("push", "team/two-of-three:v1")
    run("rm", "team/two-of-three:v1", "-y")
    run("pull", "team/two-of-three:v1")
    assert run("show", "team/two-of-three:v1", "--json").json["digest"] == made["digest"]
    # It keeps no values, and says so.
    assert "is a mask: it holds which" in run("apply", "team/two-of-three:v1", "-o", tmp_path / "out", status=66).err


def test_counts_add_up(run: Run, masks: list[str]) -> None:
    for how in ("and", "or", "minus", "xor"):
        run("combine", REF, "two", "--how", how, "--name", how)
    one, other = nnz(run, REF), nnz(run, "two")
    assert nnz(run, "and") + nnz(run, "or") == one + other
    assert nnz(run, "minus") == one - nnz(run, "and")
    assert nnz(run, "xor") == nnz(run, "or") - nnz(run, "and")


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


def test_what_is_refused(run: Run, masks: list[str], tmp_path: Path) -> None:
    assert "--how" in run("combine", REF, "two", "--name", "x", status=2).err
    run("combine", REF, "two", "--how", "and", "--at-least", "1", "--name", "x", status=2)
    run("combine", REF, "two", "--how", "nand", "--name", "x", status=2)
    run("combine", REF, "two", "--at-least", "0", "--name", "x", status=2)
    run("combine", REF, "two", "three", "--how", "minus", "--name", "x", status=2)
    run("combine", REF, "two", "--at-least", "3", "--name", "x", status=2)
    run("combine", REF, "--how", "and", "--name", "x", status=2)
    run("combine", REF, "two", "--how", "and", "--name", f"x@{masks[0]}", status=2)
    run("combine", REF, "two", "--how", "and", "--name", "x", "--description", "a\x1b", status=2)
    run("combine", REF, "missing", "--how", "and", "--name", "x", status=66)
    source = {n: moved(t, 0.1, 7) for n, t in tensors().items()}
    pair = [make_checkpoint(tmp_path / n, t) for n, t in (("s", source), ("t", tensors()))]
    run("extract", *pair, "--name", "foreign")
    assert "different sources" in run("combine", REF, "foreign", "--how", "or", "--name", "x", status=65).err
    run("extract", pair[1], pair[0], "--name", "loose", "--rule", "abs:1e-5")
    assert run("list", "-q").out.count("x\n") == 0


def test_masks_of_two_rules(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("extract", *pair, "--name", "loose", "--rule", "abs:1e-5", "--mask-only")
    words = ("combine", REF, "loose", "--how", "minus", "--name", "small")
    assert "--allow-different" in run(*words, status=65).err
    made = run(*words, "--allow-different", "--json").json["manifest"]
    assert made["recipe"]["rules"] == ["exact", "abs:1e-05"]


def test_the_way_out_of_a_conflict_can_be_run(run: Run, masks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = maskreg.flow.masks.combine

    def overtaken(*args: object, **options: object) -> Digest:
        done = before(*args, **options)  # type: ignore[arg-type]
        with Registry.local(Settings.load()) as here:
            here.publish(Ref.parse("team/both"), Digest(masks[0]), card=Card())
        return done

    monkeypatch.setattr("maskreg.flow.masks.combine", overtaken)
    words = ("combine", REF, "two", "--how", "and", "--name", "team/both", "--json")
    hint = run(*words, status=75).json["error"]["hint"]
    program, *again = hint.split()
    assert program == "maskreg"
    assert run(*again, "--json").json[0]["ref"] == "team/both:OTHER-TAG"
