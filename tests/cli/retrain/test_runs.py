"""``maskreg retrain``: recipes, controls, going on and lineage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from maskreg.checkpoint.safetensors import open_path
from maskreg.digest import Digest
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.cli.conftest import Run
from tests.cli.retrain.conftest import Train
from tests.flow.making import stored
from tests.train.making import make_model, write_lines

REWARDS = """
import torch
def length(prompts, completions, answer, **_):
    return [float(len(completion)) + len(expected) for completion, expected in zip(completions, answer)]
def broken(**_):
    return [{}["absent"]]
"""


def outside(source: Path, model: Path, digest: str) -> tuple[int, int]:
    """Coordinates that moved although the mask does not have them, and all that moved."""
    before, after = stored(source), stored(model)
    assert [(name, *one[:2]) for name, one in before.items()] == [(name, *one[:2]) for name, one in after.items()]
    wrong = moved = 0
    with Registry.local(Settings.load()) as here:
        mask = here.artifact(Digest(digest)).mask
        for name, one in before.items():
            left, right = (torch.frombuffer(bytearray(side), dtype=torch.int16) for side in (one[2], after[name][2]))
            differ = left != right
            moved += int(differ.sum())
            wrong += int((differ & ~torch.from_numpy(mask[name].to_bool().reshape(-1))).sum())
    return wrong, moved


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
    wrong, moved = outside(source, model, summary["setup"]["mask"])
    assert wrong == 0
    assert moved == summary["visible"] > 500
    assert 0.3 < summary["density"] < 0.5
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [line["learning_rate"] for line in lines] == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3])
    assert "step 3/3  loss" in done.err
    assert train().out == f"{model}\n"


def test_opd_comes_closer_to_the_teacher(train: Train, source: Path, teacher: Path, tmp_path: Path) -> None:
    options = ["--teacher", teacher, "-c", "max_steps=12", "-c", "learning_rate=3e-3"]
    summary = train(*options, "--json", recipe="opd").json
    assert summary["last_loss"] < summary["first_loss"]
    wrong, moved = outside(source, tmp_path / "run" / "model", summary["setup"]["mask"])
    assert wrong == 0 < moved
    assert summary["setup"]["teacher"] not in ("", summary["setup"]["source"])


def test_grpo_follows_a_reward_of_ones_own(train: Train, source: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    (tmp_path / "grpo.yaml").write_text("num_generations: 2\nweight_decay: 1e-2\n")
    data = write_lines(tmp_path / "asked.jsonl", [{"prompt": f"# {i}+1=", "answer": str(i + 1)} for i in range(8)])
    given = ["--data", data, "--config", "grpo.yaml", "--reward", "own_rewards:length", "--name", "own"]
    done = train(*given, "--json", recipe="grpo")
    assert "reward" in done.err
    setup = done.json["setup"]
    assert setup["config"].items() >= {"num_generations": 2, "weight_decay": 0.01, "max_steps": 3}.items()
    wrong, moved = outside(source, tmp_path / "run" / "model", setup["mask"])
    assert wrong == 0 < moved
    shown = run("show", "own", "--json").json
    assert shown["card"] == {"family": "tiny", "method": "grpo"}
    assert shown["manifest"]["recipe"]["code"].startswith("sha256:")
    given[-1:] = ["other", "-o", "other"]
    given[given.index("own_rewards:length")] = "own_rewards:broken"
    told = train(*given, recipe="grpo", status=2).err
    assert "GRPOTrainer: KeyError: 'absent'" in told
    assert "own_rewards.py, line 6" in told


@pytest.mark.parametrize(
    ("recipe", "args", "words"),
    [
        ("sft", ["--loss", "own_wrong_1:nothing"], "SFTTrainer: TypeError"),
        ("grpo", ["--reward", "own_wrong_2:one", "-c", "num_generations=0"], "GRPOConfig: ZeroDivisionError"),
    ],
    ids=["loss", "config"],
)
def test_what_does_not_suit_trl_is_no_bug(
    train: Train, tmp_path: Path, recipe: str, args: list[str], words: str
) -> None:
    code = "def nothing(o, labels, **_):\n    pass\n\n\ndef one(prompts, **_):\n    return [1.0] * len(prompts)\n"
    for number in (1, 2):  # a module of its own for each case, as this process imports a name once
        (tmp_path / f"own_wrong_{number}.py").write_text(code)
    assert words in train(*args, recipe=recipe, status=2).err


@pytest.mark.parametrize(
    "record",
    [
        {"text": "# 1+2=3"},
        {"prompt": [{"role": "user", "content": "1+1="}], "completion": [{"role": "assistant", "content": "2"}]},
    ],
)
def test_records_of_every_kind(train: Train, tmp_path: Path, record: dict[str, object]) -> None:
    data = write_lines(tmp_path / "records.jsonl", [record] * 4)
    assert train("--data", data, "--json").json["last_loss"] > 0


def test_what_is_registered_says_how_it_came_about(train: Train, run: Run, source: Path, tmp_path: Path) -> None:
    summary = train("--name", "again:v1", "-c", "seed=3", "--json").json
    shown = run("show", "again:v1", "--json").json
    manifest = shown["manifest"]
    assert shown["digest"] == summary["digest"]
    assert manifest["kind"] == "delta"
    assert manifest["parents"] == [summary["setup"]["mask"]]
    assert manifest["recipe"]["kind"] == "retrain"
    assert manifest["recipe"]["recipe"] == "sft"
    assert manifest["recipe"]["environments"] == summary["environments"]
    assert manifest["recipe"]["config"] == {
        "seed": 3, "max_steps": 3, "optim": "adamw_torch", "learning_rate": 1e-3,
    }  # fmt: skip
    assert not {"teacher", "source"} & manifest["recipe"].keys()
    assert manifest["totals"]["nnz"] == summary["visible"]
    run("apply", "again:v1", "--source", source, "-o", tmp_path / "patched")
    assert stored(tmp_path / "patched") == stored(Path(summary["model"]))
    assert train("--name", "again:v1", "-c", "seed=3", "--json").json["digest"] == summary["digest"]


def test_a_control(train: Train, source: Path, tmp_path: Path, run: Run) -> None:
    summary = train("--control", "exponent-matched", "--control-seed", "7", "--json", "--name", "control").json
    setup = summary["setup"]
    assert setup["control"]["kind"] == "exponent-matched"
    assert setup["mask"] != setup["parent"]
    assert outside(source, tmp_path / "run" / "model", setup["mask"])[0] == 0
    own = run("show", "toy", "--json").json
    assert setup["parent"] == own["digest"]
    assert summary["density"] == pytest.approx(own["density"], abs=0.001)
    assert run("show", "control", "--json").json["manifest"]["recipe"]["control"]["kind"] == "exponent-matched"


def test_of_a_wide_source_the_mask_is_registered(train: Train, run: Run, tmp_path: Path) -> None:
    wide = make_model(tmp_path / "wide", seed=1, dtype=torch.float64)
    summary = train("--control", "full", "--source", wide, "--name", "wide", "--json", ref=None).json
    manifest = run("show", "wide", "--json").json["manifest"]
    assert manifest["kind"] == "mask"
    assert manifest["totals"]["nnz"] == summary["visible"] > 500


def test_a_dry_run_trains_nothing(train: Train, tmp_path: Path) -> None:
    plan = train("--dry-run", "--json").json
    assert plan["trained"] == pytest.approx(plan["parameters"] * plan["density"])
    assert plan["records"] == 12
    assert not (tmp_path / "run").exists()
