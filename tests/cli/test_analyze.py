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


def test_roles_and_layers_select_what_is_measured(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    chosen = ("--role", "q_proj,ffn", "--layers", "1")
    done = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, *chosen, "--by", "tensor")
    assert "note: measured is what --role q_proj,ffn --layers 1 selects: 1,280 coordinates of 4,160" in done.out
    assert "model.layers.1.mlp.up_proj.weight" in done.out
    assert "model.layers.0" not in done.out
    document = run("analyze", "--trajectory", *pair, pair[1], *chosen, "--json").json
    assert document["selection"] == {"roles": ["q_proj", "ffn"], "layers": "1"}
    assert document["checkpoints"][0]["matrices"] == 2
    asked = ("--metrics", "angles", "--metrics", "concentration", "--rank", "4", "--by", "role")
    shown = run("analyze", "--trajectory", *pair, pair[1], *chosen, *asked).out
    for words in ("spectral norm", "concentration_0.1pct", "angle", "more figures: --json", "\nffn "):
        assert words in shown
    failed = run("analyze", "toy-opd:v1", "--source", pair[0], *QUICK, "--role", "q_porj", status=2)
    assert "no tensor has the role or name 'q_porj'" in failed.err
    assert "--role q_proj" in failed.err


def test_the_tables_of_a_paper_stand_beside(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    run("analyze", "toy-opd:v1", "--source", pair[0], "--metrics", "sparsity", "--metrics", "norm")
    done = run("analyze", "toy-opd-analysis:v1", "--paper", "dssu", "--paper", "sub")
    for words in ("2606.13657, main table", "rule: abs:1e-05", "this update  ", "2505.11711, table 6", "95.98 %"):
        assert words in done.out
    assert "no stable rank: stable_rank was not measured: analyze with --metrics rank" in done.out
    document = run("analyze", "toy-opd-analysis:v1", "--paper", "dssu", "--json").json
    main = document["papers"]["dssu"][0]
    assert main["ours"]["sparsity"]["value"] == 100 * document["analysis"]["total"]["sparsity"]["abs:1e-05"]["value"]
    assert "papers" not in run("analyze", "toy-opd-analysis:v1", "--json").json
    run("analyze", "toy-opd-analysis:v1", "--paper", "dsu", status=2)
    page = tmp_path / "page.html"
    told = run("report", "toy-opd:v1", "--paper", "geo", "-o", page, "--json").json
    assert [table["cite"].rpartition(", ")[2] for table in told["papers"]][:2] == ["table 1", "figure 3"]
    assert "Beside published tables" in page.read_text()


def test_a_report_without_an_analysis_has_nothing_to_stand_beside(run: Run, artifact: str, tmp_path: Path) -> None:
    told = run("report", "toy-opd:v1", "--paper", "geo", "-o", tmp_path / "page.html", status=2).err
    assert "was not analyzed" in told
    assert "maskreg analyze toy-opd:v1" in told
    assert not (tmp_path / "page.html").exists()


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
