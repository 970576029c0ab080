"""``maskreg retrain``: recipes, controls, going on, lineage, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.mask.baseline import KINDS
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.checkpoints import make_checkpoint
from tests.cli.conftest import Done, Run
from tests.flow.making import stored
from tests.retrain.making import WORDS, make_model, make_target, sums, write_lines

FEW = ["--steps", "3", "--batch-size", "4", "--lr", "1e-3", "--max-new-tokens", "4"]

Train = Callable[..., Done]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    # These models are too small to be shared by threads, which would only wait for each other.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "source", seed=1)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "teacher", seed=2)


@pytest.fixture(scope="session")
def target(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(source, tmp_path_factory.mktemp("models") / "target")


@pytest.fixture
def train(run: Run, source: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Runs sft on some sums with a mask called toy, unless told otherwise."""
    run("extract", source, target, "--name", "toy", "--family", "tiny")
    monkeypatch.chdir(tmp_path)
    data = sums(tmp_path / "data.jsonl")

    def call(*args: str | Path, status: int = 0, ref: str | None = "toy", recipe: str = "sft") -> Done:
        given = [str(arg) for arg in args]
        defaults: dict[str, str | Path] = {"--source": source, "--data": data, "-o": tmp_path / "run"}
        filled = [str(word) for name, value in defaults.items() if name not in given for word in (name, value)]
        refs = [] if ref is None else [ref]
        return run("retrain", *refs, "--recipe", recipe, *filled, *FEW, *given, status=status)

    return call


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
    with open_checkpoint(source) as one, open_checkpoint(model) as other:
        assert [shard.header for shard in one.shards] == [shard.header for shard in other.shards]
        assert one.index == other.index
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
    assert "gave no loss" in train("--data", data, "-o", "other", recipe="own_losses:none", status=65).err
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
    options = ["--mask", kind, *(["--mask-seed", "7"] if kind in SEEDED else [])]
    options += ["--mask-density", "0.1"] if kind == "subset" else []
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
    summary = train("--mask", "full", "--json", ref=ref).json
    assert summary["density"] == 1
    assert summary["setup"]["mask"] == ""
    assert summary["visible_density"] > 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_a_wide_source_the_mask_is_registered(train: Train, run: Run, tmp_path: Path, dtype: torch.dtype) -> None:
    wide = make_model(tmp_path / "wide", seed=1, dtype=dtype)
    summary = train("--mask", "full", "--source", wide, "--name", "wide", "--json", ref=None).json
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
    assert "steps        3 of 4 records, from 12" in train("--dry-run").out
    assert not (tmp_path / "run").exists()


def test_records_that_are_cut_are_counted(train: Train, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "texts.jsonl", [{"text": "# 1+1=2"}, {"text": "# 1+1=2" * 5}])
    plan = ("--dry-run", "--data", data, "--max-length")
    assert "1 of 2 records are cut at 16 tokens" in train(*plan, "16").err
    assert "are cut" not in train(*plan, "64").err


def test_a_folder_of_something_else_is_left_alone(train: Train, tmp_path: Path) -> None:
    done = train("--json").json
    told = train("--lr", "0.5", "--seed", "4", status=73).err
    assert "lr: 0.001 there, 0.5 now" in told
    assert "seed: 0 there, 4 now" in told
    again = train("--save-every", "2")
    assert "is complete already" in again.err
    assert again.out == f"{done['model']}\n"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert "holds no run" in train("-o", tmp_path / "full", status=73).err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "# 1+1=", "completion": "2"}\n{"prompt": \n', "data.jsonl:2: not a well-formed JSON document"),
        ('{"prompt": "# 1+1=", "completion": "2"}\n\n[1]\n', "data.jsonl:3: a JSON object was expected"),
        ('{"prompt": "# 1+1="}\n', "data.jsonl:1: 'completion' is missing"),
        ('{"prompt": 3, "completion": "2"}\n', "data.jsonl:1: 'prompt' is int, not text"),
        ('{"prompt": "", "completion": "2"}\n', "data.jsonl:1: an empty prompt"),
        ('{"text": ""}\n', "nothing to train on"),
        ('{"messages": []}\n', "'messages' is no list"),
        ('{"messages": [{"role": "user", "content": "1"}]}\n', "not the assistant's"),
        (json.dumps({"prompt": "1" * 70, "completion": "2"}) + "\n", "the prompt has 70 tokens, and 63 is the most"),
        ("\n\n", "no records"),
    ],
)
def test_data_that_cannot_be_trained_on(train: Train, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "data.jsonl").write_text(text)
    assert words in train(status=65).err
    assert not (tmp_path / "run").exists()


def test_records_of_every_kind(train: Train, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]
    lines: list[dict[str, Any]] = [{"messages": said}, {"text": "# 1+2=3"}, {"prompt": "# 1+3=", "completion": "4"}]
    assert train("--data", write_lines(tmp_path / "mixed.jsonl", lines), "--json").json["last_loss"] > 0


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--data", "absent.jsonl"], 66, "no such file"),
        (["--recipe", "dpo"], 2, "there is no recipe 'dpo'"),
        (["--recipe", "opd"], 2, "needs a teacher"),
        (["--mask", "nonsense"], 2, "there is no control 'nonsense'"),
        (["--mask", "subset"], 2, "add --mask-density"),
        (["--mask", "complement", "--mask-seed", "1"], 2, "takes no seed"),
        (["--mask-seed", "1"], 2, "is for controls"),
        (["--lr", "nan"], 2, "lr cannot be nan"),
        (["--betas", "2", "0.9"], 2, "betas cannot be (2.0, 0.9)"),
        (["--clip", "nan"], 2, "clip cannot be nan"),
        (["--temperature", "inf"], 2, "temperature cannot be inf"),
        (["--seed", str(1 << 64)], 2, "not a number of 64 bits"),
        (["--momentum", "0.9"], 2, "adamw has no momentum"),
        (["--teacher", "."], 2, "learns from no teacher"),
        (["--recipe", ":mine"], 2, "no module's name"),
        (["--recipe", "../own:mine"], 2, "no module's name"),
        (["--max-length", "65"], 2, "64 tokens at most"),
        (["--warmup", "9"], 2, "warmup of 9 steps"),
        (["--loss", "full"], 2, "has no loss 'full'"),
        (["--gradients", "in-backward", "--clip", "1"], 2, "cannot clip"),
        (["--gradients", "in-backward", "--micro-batch-size", "1"], 2, "cannot accumulate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_questions_that_make_no_sense(train: Train, args: list[str], status: int, words: str, tmp_path: Path) -> None:
    assert words in train(*args, status=status).err
    assert not (tmp_path / "run").exists()


def test_checkpoints_that_do_not_belong_together(
    train: Train, teacher: Path, source: Path, tmp_path: Path, run: Run
) -> None:
    told = train("--source", teacher, status=65).err
    assert "elements 0..511 are not those the artifact was made from" in told
    words = make_model(tmp_path / "words", seed=2, words=[*WORDS[:-1], "?"])
    assert "tokenizers" in train("--teacher", words, recipe="opd", status=65).err
    wide = make_model(tmp_path / "wide", seed=2, vocabulary=24)
    assert (
        "the student's vocabulary has 16 entries, the teacher's 24"
        in train("--teacher", wide, recipe="opd", status=65).err
    )
    (tmp_path / "bare").mkdir()
    for file in source.glob("model*"):
        (tmp_path / "bare" / file.name).write_bytes(file.read_bytes())
    assert "no config.json" in train("--source", tmp_path / "bare", status=66).err
    assert "there is no absent" in train(ref="absent", status=66).err
    assert "say which mask" in train(ref=None, status=2).err
    assert not (tmp_path / "run").exists()


def test_the_source_is_found_where_it_was_seen(run: Run, train: Train, tmp_path: Path) -> None:
    data = sums(tmp_path / "data.jsonl")
    run("retrain", "toy", "--recipe", "sft", "--data", data, "-o", tmp_path / "found", *FEW)
    assert (tmp_path / "found" / "summary.json").exists()


BAD_LOSSES = """
import torch
def broken(model, records, context):
    return records[0]["absent"]
def vector(model, records, context):
    return next(model.parameters()).float().sum(0)
def steep(model, records, context):
    return (next(model.parameters()).float().sum() * 0).sqrt()
"""


def test_a_loss_of_ones_own_that_fails_says_where(train: Train, tmp_path: Path) -> None:
    (tmp_path / "bad_losses.py").write_text(BAD_LOSSES)
    (tmp_path / "no_losses.py").write_text("raise ValueError('as it is')")
    told = train(recipe="bad_losses:broken", status=2).err
    assert "bad_losses:broken failed: KeyError: 'absent'" in told
    assert "bad_losses.py, line 4" in told
    # Nothing was saved, so that the next try needs no other folder.
    assert "a tensor of shape [32] with gradients" in train(recipe="bad_losses:vector", status=65).err
    assert "has norm nan" in train("--save-every", "1", recipe="bad_losses:steep", status=65).err
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert "no_losses failed: ValueError: as it is" in train(recipe="no_losses:mine", status=2).err
    train()


def test_weights_that_became_no_numbers_are_not_saved(train: Train, tmp_path: Path) -> None:
    huge = ["--gradients", "in-backward", "--lr", "3e37", "--weight-decay", "11", "--steps", "1"]
    assert "weights are no finite numbers after step 1" in train(*huge, status=65).err
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_configuration_of_another_model(train: Train, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
    told = train("--source", other, status=65).err
    assert "transformers cannot load it" in told
    assert "next: " in told


def test_one_file_is_no_checkpoint_to_train(run: Run, tmp_path: Path) -> None:
    whole = make_checkpoint(tmp_path / "one", {"w": ("BF16", np.zeros((2, 2), np.uint16))}) / "model.safetensors"
    data = sums(tmp_path / "data.jsonl")
    options = ["--mask", "full", "--recipe", "sft", "--data", str(data), "-o", str(tmp_path / "run")]
    told = run("retrain", "--source", whole, *options, status=2).err
    assert "is a file" in told
    assert f"--source {whole.parent}" in told


def test_a_name_that_meant_something_else_can_be_had_back(train: Train, tmp_path: Path) -> None:
    told = train("--name", "toy").err
    assert "note: toy was " in told
    assert "maskreg tag toy@sha256:" in told


def test_another_run_is_not_called_complete(train: Train) -> None:
    train()
    told = train("--seed", "1", status=73).err
    assert "holds another run: seed: 0 there, 1 now" in told
    assert "complete" not in told
