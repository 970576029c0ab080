"""``maskreg retrain``: recipes, controls, going on and lineage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from maskreg.checkpoint.safetensors import open_path
from maskreg.digest import Digest
from maskreg.mask.baseline import KINDS
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.cli.conftest import Run
from tests.cli.retrain.conftest import FEW, Train
from tests.flow.making import stored
from tests.train.making import make_model, sums, write_lines


def changed(source: Path, model: Path) -> dict[str, torch.Tensor]:
    """Which bits differ, tensor by tensor."""
    before, after = stored(source), stored(model)
    assert [(name, *one[:2]) for name, one in before.items()] == [(name, *one[:2]) for name, one in after.items()]
    return {
        name: torch.frombuffer(bytearray(one[2]), dtype=torch.int16)
        != torch.frombuffer(bytearray(after[name][2]), dtype=torch.int16)
        for name, one in before.items()
    }


def outside(source: Path, model: Path, digest: str) -> int:
    """Coordinates that moved although the mask does not have them."""
    with Registry.local(Settings.load()) as here:
        mask = here.artifact(Digest(digest)).mask
        return sum(
            int((moved & ~torch.from_numpy(mask[name].to_bool().reshape(-1))).sum())
            for name, moved in changed(source, model).items()
        )


def test_sft_moves_coordinates_of_the_mask_alone_and_keeps_the_layout(
    train: Train, source: Path, tmp_path: Path
) -> None:
    done = train("--json")
    summary = done.json
    model = Path(summary["model"])
    assert model == tmp_path / "run" / "model"
    assert sorted(p.name for p in model.iterdir()) == sorted(p.name for p in source.iterdir() if p.suffix != ".bin")
    with open_path(source) as before, open_path(model) as after:
        assert [shard.header for shard in before.shards] == [shard.header for shard in after.shards]
        assert before.index == after.index
    moved = sum(int(one.sum()) for one in changed(source, model).values())
    assert moved > 500
    assert moved == summary["visible"]
    assert outside(source, model, summary["setup"]["mask"]) == 0
    assert 0.3 < summary["density"] < 0.5
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert set(lines[-1]) == {"step", "loss", "lr", "grad_norm", "tokens", "seconds", "moved"}
    assert lines[-1]["moved"] == pytest.approx(summary["visible_density"])
    assert f"loss before the first step: {lines[0]['loss']:.4f}" in done.err
    assert train().out == f"{model}\n"


@pytest.mark.parametrize("loss", ["full", "sampled"])
def test_opd_comes_closer_to_the_teacher(train: Train, source: Path, teacher: Path, loss: str, tmp_path: Path) -> None:
    options = ["--teacher", teacher, "--loss", loss, "--steps", "12", "--lr", "3e-3", "--temperature", "1"]
    summary = train(*options, "--json", recipe="opd").json
    assert summary["last_loss"] < summary["first_loss"]
    assert outside(source, tmp_path / "run" / "model", summary["setup"]["mask"]) == 0
    assert summary["setup"]["teacher"] not in ("", summary["setup"]["source"])


def test_a_teacher_that_is_the_source_has_nothing_to_say(train: Train, source: Path) -> None:
    summary = train("--teacher", source, "--json", recipe="opd").json
    assert abs(summary["first_loss"]) < 1e-6


LOSSES = """
import torch
def mine(model, records, context):
    ids = torch.tensor([context.tokenizer(r["text"]).input_ids for r in records], device=context.device)
    return model(input_ids=ids, labels=ids).loss
def none(model, records, context):
    return 3.0
def steep(model, records, context):
    return (next(model.parameters()).float() * 0).sum().sqrt()
"""


def test_a_loss_of_ones_own(train: Train, tmp_path: Path, run: Run) -> None:
    (tmp_path / "own_losses.py").write_text(LOSSES)
    data = write_lines(tmp_path / "texts.jsonl", [{"text": f"# {i}+1="} for i in range(8)])
    summary = train("--data", data, "--json", "--name", "own", "--lr", "1e-2", recipe="own_losses:mine").json
    assert summary["last_loss"] < summary["first_loss"]
    shown = run("show", "own", "--json").json
    assert shown["card"] == {"family": "tiny", "method": "custom"}
    assert shown["manifest"]["recipe"]["recipe_code"].startswith("sha256:")
    assert "instead of a loss" in train("--data", data, "-o", "other", recipe="own_losses:none", status=65).err
    assert (
        "gradient of step 1 has norm nan"
        in train("--data", data, "-o", "steep", recipe="own_losses:steep", status=65).err
    )
    assert "no function" in train("--data", data, "-o", "other", recipe="own_losses:absent", status=2).err
    assert "cannot be imported" in train("--data", data, "-o", "other", recipe="absent.module:mine", status=2).err


def test_what_is_registered_says_how_it_came_about(train: Train, run: Run, source: Path, tmp_path: Path) -> None:
    summary = train("--name", "again:v1", "--seed", "3", "--json").json
    shown = run("show", "again:v1", "--json").json
    manifest = shown["manifest"]
    assert shown["digest"] == summary["digest"]
    assert manifest["kind"] == "delta"
    assert manifest["parents"] == [summary["setup"]["mask"]]
    assert manifest["recipe"]["kind"] == "retrain"
    assert {key: manifest["recipe"][key] for key in ("recipe", "seed", "steps", "optimizer")} == {
        "recipe": "sft", "seed": 3, "steps": 3, "optimizer": "adamw",
    }  # fmt: skip
    assert manifest["totals"]["nnz"] == summary["visible"]
    run("apply", "again:v1", "--source", source, "-o", tmp_path / "patched")
    assert stored(tmp_path / "patched") == stored(Path(summary["model"]))
    assert train("--name", "again:v1", "--seed", "3", "--json").json["digest"] == summary["digest"]


SEEDED = {name for name, kind in KINDS.items() if kind.seeded}


@pytest.mark.parametrize(
    "kind",
    ["random-per-tensor", "exponent-matched", "low-magnitude", "rounding-null", "subset", "complement"],
)
def test_controls(train: Train, kind: str, source: Path, tmp_path: Path, run: Run) -> None:
    options = ["--control", kind, *(["--control-seed", "7"] if kind in SEEDED else [])]
    options += ["--control-density", "0.1"] if kind == "subset" else []
    summary = train(*options, "--json", "--name", "control").json
    setup = summary["setup"]
    assert setup["control"]["kind"] == kind
    assert setup["mask"] != setup["parent"]
    assert outside(source, tmp_path / "run" / "model", setup["mask"]) == 0
    own = run("show", "toy", "--json").json
    assert setup["parent"] == own["digest"]
    expected = {"subset": 0.1, "complement": 1 - own["density"]}.get(kind, own["density"])
    assert summary["density"] == pytest.approx(expected, abs=0.001)
    assert run("show", "control", "--json").json["manifest"]["recipe"]["control"]["kind"] == kind


@pytest.mark.parametrize("ref", ["toy", None])
def test_everything_may_be_trained(train: Train, ref: str | None) -> None:
    summary = train("--control", "full", "--json", ref=ref).json
    assert summary["density"] == 1
    assert summary["setup"]["mask"] == ""
    assert summary["visible_density"] > 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_a_wide_source_the_mask_is_registered(train: Train, run: Run, tmp_path: Path, dtype: torch.dtype) -> None:
    wide = make_model(tmp_path / "wide", seed=1, dtype=dtype)
    summary = train("--control", "full", "--source", wide, "--name", "wide", "--json", ref=None).json
    manifest = run("show", "wide", "--json").json["manifest"]
    assert manifest["kind"] == "mask"
    assert manifest["totals"]["nnz"] == summary["visible"] > 500


def test_gradients_in_parts_and_other_optimizers(train: Train, source: Path, tmp_path: Path) -> None:
    whole = train("--json", "--dtype", "float32").json
    parts = train("-o", tmp_path / "parts", "--micro-batch-size", "1", "--dtype", "float32", "--json").json
    assert parts["last_loss"] == pytest.approx(whole["last_loss"], abs=1e-4)
    assert stored(source).keys() == stored(tmp_path / "parts" / "model").keys()
    for number, options in enumerate(
        (["--gradients", "dense"], ["--gradients", "in-backward"], ["--optimizer", "sgd", "--momentum", "0.9"])
    ):
        summary = train("-o", tmp_path / str(number), *options, "--json").json
        assert outside(source, tmp_path / str(number) / "model", summary["setup"]["mask"]) == 0
        assert summary["visible"]


def test_schedules_reach_the_optimizer(train: Train, tmp_path: Path) -> None:
    train("--schedule", "linear", "--warmup", "1", "--steps", "3", "--lr", "0.004")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["lr"] for line in lines] == pytest.approx([0.004, 0.004, 0.002])


def test_a_dry_run_trains_nothing(train: Train, tmp_path: Path) -> None:
    plan = train("--dry-run", "--json").json
    assert plan["trained"] == pytest.approx(plan["parameters"] * plan["density"])
    assert plan["optimizer_bytes"] == pytest.approx(12 * plan["trained"] + plan["parameters"] * 3 / 16, rel=0.02)
    assert plan["records"] == 12
    assert "steps        3, each of 4 records, from 12" in train("--dry-run").out
    assert not (tmp_path / "run").exists()


def test_records_that_are_cut_are_counted(train: Train, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "texts.jsonl", [{"text": "# 1+1=2"}, {"text": "# 1+1=2" * 5}])
    plan = ("--dry-run", "--data", data, "--max-length")
    assert "1 of 2 records are cut at 16 tokens" in train(*plan, "16").err
    assert "are cut" not in train(*plan, "64").err


def test_the_source_is_found_where_it_was_seen(run: Run, train: Train, tmp_path: Path) -> None:
    data = sums(tmp_path / "data.jsonl")
    run("retrain", "toy", "--recipe", "sft", "--data", data, "-o", tmp_path / "found", *FEW)
    assert (tmp_path / "found" / "summary.json").exists()
