"""``maskreg baseline``: names, sources, and what other commands make of what it made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskreg.flow.baseline.build
from maskreg.artifact.reader import Artifact
from maskreg.digest import Digest
from maskreg.mask import overlap
from maskreg.mask.baseline import KINDS
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.cli.conftest import Run
from tests.demo import DEMO

REF = "toy-opd:v1"
OPTIONS: dict[str, list[str]] = {"subset": ["--density", "0.1"]}
PARAMETERS = {"subset": "-d0.1", "safe": "-a0.5"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.torch) if kind in ("principal", "safe") else kind for kind in KINDS]
)
def test_every_kind(kind: str, run: Run, artifact: str) -> None:
    made = run("baseline", REF, "--kind", kind, *OPTIONS.get(kind, []), "--json").json
    assert made["ref"] == f"toy-opd-{kind}{PARAMETERS.get(kind, '')}{'-s0' if KINDS[kind].seeded else ''}:v1"
    assert made["manifest"]["kind"] == "baseline"
    assert made["manifest"]["recipe"]["kind"] == kind
    assert made["manifest"]["parents"] == [artifact]
    assert made["card"] == {"family": "toy", "method": kind}
    if kind not in ("safe", "subset", "complement"):
        assert made["manifest"]["totals"]["nnz"] == run("show", REF, "--json").json["manifest"]["totals"]["nnz"]
    shown = run("show", made["ref"]).out
    assert f"recipe       {kind}" in shown
    assert "chosen" in shown
    assert "moved" not in shown
    assert "energy" not in shown
    assert "target" not in shown
    assert kind in run("baseline", "--help").out


def test_its_name_may_be_chosen_and_what_is_said_of_it_holds(run: Run, artifact: str) -> None:
    first = run("baseline", REF, "--kind", "random-global", "--seed", "7", "--name", "lab/chance:s7", "--json").json
    assert first["ref"] == "lab/chance:s7"
    assert first["manifest"]["recipe"] == {"kind": "random-global", "seed": 7}
    run("annotate", "lab/chance:s7", "--meta", "why=control")
    again = run("baseline", REF, "--kind", "random-global", "--seed", "7", "--name", "lab/chance:s7", "--json").json
    assert again["digest"] == first["digest"]
    assert again["card"]["meta"] == {"why": "control"}
    other = run("baseline", REF, "--kind", "random-global", "--seed", "8", "--name", "lab/chance:s8", "--json").json
    assert other["digest"] != first["digest"]


def test_it_travels_and_is_found_like_any_artifact(run: Run, artifact: str, tmp_path: Path) -> None:
    made = run("baseline", REF, "--kind", "exponent-matched", "--json").json
    run("remote", "add", "team", tmp_path / "team")
    run("push", made["ref"])
    run("rm", made["ref"], "--yes")
    pulled = run("pull", made["ref"], "--json").out
    assert made["digest"] in pulled
    (found,) = [row for row in run("list", "--kind", "baseline", "--json").json["names"] if row["kind"] == "baseline"]
    assert found["digest"] == made["digest"]
    run("verify", made["ref"])
    run("export", made["ref"], "-o", tmp_path / "b.maskreg")
    told = run("apply", made["ref"], "-o", tmp_path / "out", status=66).err
    assert "is a baseline: it holds which coordinates move" in told
    assert "--mask-only" not in told


def test_the_source_may_be_named_or_found(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    kind = ("--kind", "low-magnitude")
    found = run("baseline", REF, *kind, "--json").json["digest"]
    elsewhere = shutil.move(pair[0], tmp_path / "elsewhere")
    told = run("baseline", REF, *kind, status=66).err
    assert f"next: maskreg baseline {REF} --kind low-magnitude --source PATH" in told
    assert run("baseline", REF, *kind, "--source", elsewhere, "--json").json["digest"] == found
    # And is known from then on.
    run("baseline", REF, *kind)
    told = run("baseline", REF, *kind, "--source", pair[1], status=65).err
    assert "has the values of the artifact's target, not of its source" in told
    # Kinds that look at no weights need none.
    shutil.rmtree(elsewhere)
    run("baseline", REF, "--kind", "complement")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--kind", "random"], "one of: random-global, random-per-tensor"),
        (["--kind", "low-magnitude", "--seed", "1"], "takes no seed"),
        (["--kind", "subset"], "give a density, such as 0.1"),
        (["--kind", "subset", "--density", "0.9"], "but the mask"),
        (["--kind", "complement", "--name", f"x@sha256:{'0' * 64}"], "no digest yet"),
        ([], "--kind"),
    ],
)
def test_what_makes_no_sense(words: list[str], what: str, run: Run, artifact: str) -> None:
    assert what in run("baseline", REF, *words, status=2).err


def test_a_name_that_meant_something_else_is_told_with_the_way_back(run: Run, artifact: str) -> None:
    words = ("baseline", REF, "--kind", "random-global", "--name", "lab/chance:a")
    first = run(*words, "--json")
    assert (first.json["was"], first.err) == (None, "")
    run("annotate", "lab/chance:a", "--meta", "why=control")
    second = run(*words, "--seed", "1", "--json")
    assert second.json["was"] == first.json["digest"]
    short = first.json["digest"][:19]
    note, _, back = second.err.strip().partition("; next: to have it back: maskreg ")
    assert note == f"note: lab/chance:a was {short}"
    run(*back.split())
    shown = run("show", "lab/chance:a", "--json").json
    assert (shown["digest"], shown["card"]["meta"]) == (first.json["digest"], {"why": "control"})
    # The same again moves nothing.
    assert run(*words, "--json").json["was"] is None
    for made in (
        ("combine", REF, "lab/chance:a", "--how", "or"),
        ("extract", run_source(run), run_source(run)),
    ):
        tells_the_way_back(run, *made)


@pytest.mark.torch
def test_an_analysis_that_takes_a_name_tells_the_way_back(run: Run, artifact: str) -> None:
    run("baseline", REF, "--kind", "random-global", "--name", "lab/chance:a")
    tells_the_way_back(run, "analyze", REF, "--source", run_source(run), "--metrics", "norm")


def tells_the_way_back(run: Run, *words: str) -> None:
    was = run("show", "lab/chance:a", "--json").json["digest"]
    done = run(*words, "--name", "lab/chance:a", "--json")
    assert done.json["was"] == was
    assert f"note: lab/chance:a was {was[:19]}; next: to have it back: maskreg tag lab/chance:a@{was} a\n" in done.err


def run_source(run: Run) -> str:
    """Where this machine saw the source of the artifact."""
    with Registry.local(Settings.load()) as here:
        assert here.catalog is not None
        return here.catalog.seen_sources(run("show", REF, "--json").json["manifest"]["source"]["root"])[0]


def test_a_source_that_is_not_needed_is_said(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    told = run("baseline", REF, "--kind", "complement", "--source", pair[0]).err
    assert "note: the source was not used: complement does not look at weights" in told
    assert run("baseline", REF, "--kind", "low-magnitude", "--source", pair[0]).err == ""


def test_hints_keep_what_was_asked_for(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    shutil.rmtree(pair[0])
    told = run("baseline", REF, "--kind", "exponent-matched", "--seed", "7", "--name", "it's", status=2).err
    assert "not a reference" in told
    told = run("baseline", REF, "--kind", "exponent-matched", "--seed", "7", "--name", "lab/chance", status=66).err
    assert f"next: maskreg baseline {REF} --kind exponent-matched --seed 7 --name lab/chance --source PATH" in told


def test_a_mask_that_is_not_here(run: Run, artifact: str) -> None:
    run("baseline", "nothing", "--kind", "complement", status=66)


def test_the_way_out_of_a_conflict_can_be_run(run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = maskreg.flow.baseline.build.make_baseline

    def overtaken(*args: Any, **options: Any) -> Any:
        done = before(*args, **options)
        with Registry.local(Settings.load()) as here:
            here.publish(Ref.parse("team/null"), Digest(artifact), card=Card())
        return done

    monkeypatch.setattr("maskreg.flow.baseline.build.make_baseline", overtaken)
    error = run("baseline", REF, "--kind", "complement", "--name", "team/null", "--json", status=75).json["error"]
    program, *words = error["hint"].split()
    assert program == "maskreg"
    assert run(*words, "--json").json[0]["ref"] == "team/null:OTHER-TAG"


def test_what_baselines_leave_of_the_overlap_of_two_runs(run: Run) -> None:
    """Two distillations of one source of a million parameters, in overlap over what chance gives."""
    found: dict[str, Artifact] = {}
    with Registry.local(Settings.load()) as here:

        def put(name: str, digest: str) -> None:
            found[name] = here.artifact(Digest(digest))

        for name in ("target", "target-seed1"):
            made = run("extract", DEMO / "source", DEMO / name, "--name", name, "--mask-only", "--json").json
            put(name, made["digest"])
            for kind in ("random-global", "random-per-tensor", "exponent-matched", "rounding-null"):
                put(f"{kind} {name}", run("baseline", name, "--kind", kind, "--json").json["digest"])

        def common(one: str, other: str) -> int:
            left, right = found[one], found[other]
            return sum(overlap(left.mask_bits(r), right.mask_bits(right.by_name[r.name])) for r in left.tensors)

        seen = common("target", "target-seed1")
        over = {k: seen / common(f"{k} target", f"{k} target-seed1") for k in ("exponent-matched", "rounding-null")}
        p, q = (found[name].manifest.totals.density for name in ("target", "target-seed1"))
        assert seen / (p * q * found["target"].manifest.totals.numel) == pytest.approx(1.9887, abs=1e-4)
        assert over["exponent-matched"] == pytest.approx(1.307, abs=3e-3)
        assert over["rounding-null"] == pytest.approx(1.391, abs=4e-3)
        assert seen / common("random-global target", "target-seed1") == pytest.approx(1.9887, abs=5e-3)
        assert 1.5 < seen / common("random-per-tensor target", "random-per-tensor target-seed1") < 1.99
        assert np.sign(over["rounding-null"] - over["exponent-matched"]) == 1
