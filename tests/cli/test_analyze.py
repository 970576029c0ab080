"""What ``analyze`` says, keeps and finds again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import make_checkpoint, moved, widened
from tests.cli.conftest import Run, tensors

pytestmark = pytest.mark.torch

QUICK = ("--rank", "4", "--preset", "small")


def test_an_analysis_is_told_kept_and_found_again(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    done = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK)
    for words in (
        "toy-opd-analysis:v1",
        f"of           {artifact}",
        "mean stable rank ",
        "stable_rank",
        "more figures: --verbose",
        "null",
        "fills the rank",
    ):
        assert words in done.out
    again = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK)
    assert again.out == done.out
    assert "analyzed before" in again.err
    assert run("analyze", "toy-opd-analysis:v1").out == done.out
    assert len(run("log", "toy-opd-analysis:v1", "--json").json) == 1
    other = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, "--seed", "1", "--json")
    assert "analyzed before" not in other.err
    # The first is still known, although the name moved on.
    back = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK)
    assert "analyzed before" in back.err
    assert back.out == done.out


def test_an_unknown_device_is_an_error_of_usage(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("analyze", artifact, "--source", pair[0], "--device", "tpu", status=2)


def test_json_has_everything(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    found = run("analyze", "toy-opd:v1", "--source", pair[0], "--target", pair[1], *QUICK, "--name", "x", "--json").json
    assert found["ref"] == "x"
    document = found["analysis"]
    assert document["of"] == artifact
    assert document["recipe"]["presets"]["small"]["rank"] == 16
    assert document["recipe"]["target"] == "given"
    assert set(document["roles"]) == {"embedding", "lm_head", "attention", "ffn"}
    assert set(document["layers"]) == {"", "0", "1"}
    shown = run("show", "x", "--json").json
    assert shown["manifest"]["kind"] == "analysis"
    assert shown["manifest"]["parents"] == [artifact]
    assert [row["ref"] for row in run("list", "--kind", "analysis", "--json").json["names"]] == ["x"]


@pytest.mark.parametrize(
    ("by", "label"),
    [("layer", "\n0 "), ("tensor", "\nlm_head.weight "), ("role", "\nffn "), ("module", "\nmlp.up_proj ")],
)
def test_groups(run: Run, artifact: str, pair: tuple[Path, Path], by: str, label: str) -> None:
    done = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, "--by", by)
    assert f"by {by}: " in done.out
    assert label in done.out


def test_an_analysis_travels(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    first = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, "--json").json
    modules = first["modules"]
    assert sum(group["numel"] for group in modules.values()) == first["analysis"]["total"]["numel"]
    assert modules["mlp.up_proj"]["tensors"] == 2
    run("remote", "add", "team", f"file://{tmp_path / 'team'}")
    run("push", "toy-opd-analysis:v1")
    run("verify", "toy-opd-analysis:v1")
    run("export", "toy-opd-analysis:v1", "-o", tmp_path / "a.tar")
    run("rm", "toy-opd-analysis:v1", "-y")
    run("gc", "--grace", "0s")
    run("analyze", f"toy-opd-analysis@{first['digest']}", status=66)
    run("pull", "toy-opd-analysis:v1", "--remote", "team")
    assert run("analyze", "toy-opd-analysis:v1", "--json").json["analysis"] == first["analysis"]
    run("import", tmp_path / "a.tar", "--name", "copy")
    assert run("analyze", "copy", "--json").json["digest"] == first["digest"]
    assert "analysis" in run("apply", "copy", "--source", pair[0], "-o", tmp_path / "out", status=66).err


def test_what_is_wrong_is_said(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("analyze", status=2)
    run("analyze", "toy-opd:v1", "--source", pair[1], *QUICK, status=65)
    run("analyze", "nothing", "--source", pair[0], status=66)
    run("analyze", "toy-opd:v1", "--source", pair[0], "--device", "abacus", status=2)
    run("analyze", "toy-opd:v1", "--source", pair[0], "--preset", "paper", status=2)


def test_the_source_is_found_where_it_was_seen(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    found = run("analyze", "toy-opd:v1", *QUICK, "--name", "x", "--json").json
    assert found["analysis"]["of"] == artifact
    pair[0].rename(pair[0].with_name("moved"))
    # One that was made before needs no checkpoint.
    assert run("analyze", "toy-opd:v1", *QUICK, "--name", "x", "--json").json["digest"] == found["digest"]
    told = run("analyze", "toy-opd:v1", *QUICK, "--seed", "1", status=66).err
    assert f"tried: gone: {pair[0]}" in told
    assert "--seed 1 --source PATH" in told


def test_a_trajectory(run: Run, tmp_path: Path, pair: tuple[Path, Path]) -> None:
    last = {name: moved(tensor, 0.6, 9) for name, tensor in tensors().items()}
    end = make_checkpoint(tmp_path / "end", last)
    done = run("analyze", "--trajectory", *pair, end)
    assert len(done.out.splitlines()) == 5
    assert "similarity" in done.out
    rows = run("analyze", "--trajectory", *pair, end, "--json").json["checkpoints"]
    assert [row["checkpoint"] for row in rows] == [str(pair[1]), str(end)]
    assert np.isclose(rows[1]["similarity_to_final"], 1)
    run("analyze", "--trajectory", *pair, status=2)


def test_every_figure_can_be_explained(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    document = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, "--json").json["analysis"]
    for figure in [*document["total"]["figures"], "sparsity", "null", "chance", "weighted", "similarity_to_final"]:
        found = run("analyze", "--explain", figure, "--json").json
        assert found["definition"]
        assert found["source"]
    told = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, "--verbose", "--by", "role").out
    titles = {"pooled", "value", "null", "mean", "median", "max", "weighted", "chance", "numel", "sparsity", "NSS"}
    titles |= {"rel. norm", "stable rank", "top 16", "proj. lift .10", "low", "figure: value (null)"}
    assert [title for title in titles if title not in told] == []
    end = make_checkpoint(tmp_path / "end", {name: moved(tensor, 0.6, 9) for name, tensor in tensors().items()})
    steps = re.split("  +", run("analyze", "--trajectory", *pair, end).out.splitlines()[0])
    assert {"step density", "update norm", "step norm", "similarity"} < set(steps)
    for title in {*titles, *steps, "angle 16", "principal"} - {"checkpoint"}:
        assert run("analyze", "--explain", title.partition(":")[0]).out
    assert "checkpoint before" in run("analyze", "--explain", "step density").out
    assert "next: maskreg analyze --explain nss" in run("analyze", "--explain", "nsz", status=2).err


def test_masters_are_measured_every_time(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    wide = {name: widened(tensor) for name, tensor in tensors().items()}
    masters = make_checkpoint(tmp_path / "masters", wide)
    run("extract", pair[0], masters, "--name", "wide")
    for _ in range(2):
        done = run("analyze", "wide", "--source", pair[0], "--target", masters, *QUICK)
        assert "masters" in done.out
        assert "analyzed before" not in done.err
