"""``maskreg baseline``: names, sources, and what other commands make of what it made."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.digest import Digest
from maskreg.mask import overlap
from maskreg.mask.baseline import KINDS
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
