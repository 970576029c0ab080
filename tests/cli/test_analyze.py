"""What ``analyze`` says, keeps and finds again."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_the_source_is_found_where_it_was_seen(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    found = run("analyze", "toy-opd:v1", *QUICK, "--name", "x", "--json").json
    assert found["analysis"]["of"] == artifact
    pair[0].rename(pair[0].with_name("moved"))
    # One that was made before needs no checkpoint.
    assert run("analyze", "toy-opd:v1", *QUICK, "--name", "x", "--json").json["digest"] == found["digest"]
    told = run("analyze", "toy-opd:v1", *QUICK, "--seed", "1", status=66).err
    assert f"tried: gone: {pair[0]}" in told
    assert "--seed 1 --source PATH" in told


def test_a_trajectory_by_group(run: Run, tmp_path: Path, pair: tuple[Path, Path]) -> None:
    end = make_checkpoint(tmp_path / "end", {name: moved(tensor, 0.6, 9) for name, tensor in tensors().items()})
    document = run("analyze", "--trajectory", *pair, end, "--by", "tensor", "--json").json
    assert document["by"] == "tensor"
    assert set(document["groups"]) == set(tensors())
    told = run("analyze", "--trajectory", *pair, end, "--by", "tensor").out
    for name, group in document["groups"].items():
        assert told.count(name) == 2
        assert len(group["checkpoints"]) == 2
    assert run("analyze", "--trajectory", *pair, end).out in told


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


def test_the_state_of_an_optimizer_is_shown_beside_an_update(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    state = {
        name: {kind: torch.rand(bits.shape, generator=generator) for kind in ("exp_avg", "exp_avg_sq")}
        for name, (_, bits) in tensors().items()
    }
    torch.save({"state": state}, tmp_path / "optimizer.pt")
    shown = run("analyze", artifact, "--optimizer", tmp_path, "--source", pair[0], "--by", "role").out
    for words in ("6 weights, ", "v_spread", "step_update", "by role", "attention", "no gradient was saved"):
        assert words in shown
    document = run("analyze", "--optimizer", tmp_path, "--role", "ffn", "--json").json
    assert set(document["roles"]) == {"ffn"}
    assert document["total"]["figures"]["m_update"]["mean"] is None
    for figure in document["total"]["figures"]:
        assert run("analyze", "--explain", figure).out
    run("analyze", "--optimizer", tmp_path, "--by", "module", status=2)
    refused = run("analyze", "--optimizer", pair[0], status=65)
    assert "no state of Adam" in refused.err
    assert "next:" in refused.err
