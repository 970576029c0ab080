"""The comparison of masked retraining with its controls runs on a small scale."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
CHARACTERS = ["<pad>", "<eos>", " ", "#", "+", "-", "=", *"0123456789"]
VISIBLE, MATCHED = "OPD mask: random, as visible", "OPD mask: exponent-matched"
ARMS = ("full", "OPD mask", MATCHED, VISIBLE, "SFT mask")
MASKED = ("OPD mask", MATCHED, "SFT mask")
GRID = ("--seeds", "0", "1", "--mask-seeds", "100", "103", "--arms", *ARMS)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source and a teacher with random weights and one token per character."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

    folder = tmp_path_factory.mktemp("checkpoints")
    words = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    config = Qwen3Config(
        vocab_size=len(CHARACTERS), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=32, tie_word_embeddings=True, pad_token_id=0,
        bos_token_id=None, eos_token_id=1, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for name in ("source", "teacher"):
            AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder / name)
            fast = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>")
            fast.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def done(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two seeds and two masks of some arms: their folder, and what was printed."""
    out = tmp_path_factory.mktemp("reproduce") / "out"
    command: list[str | Path] = [sys.executable, "-m", "scripts.reproduce", checkpoints, "--out", out]
    ran = subprocess.run([*command, "--quick", "--lr", "3e-3", *GRID], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return out, ran.stdout


def runs(out: Path) -> dict[str, list[dict[str, Any]]]:
    by_arm: dict[str, list[dict[str, Any]]] = json.loads((out / "results.json").read_text())["runs"]
    return by_arm


def test_arms_share_seeds_and_keep_to_their_masks(done: tuple[Path, str]) -> None:
    records_by_arm = runs(done[0])
    assert list(records_by_arm) == list(ARMS)
    first_losses = {record["seed"]: record["losses"][0] for record in records_by_arm["full"]}
    for arm, records in records_by_arm.items():
        cells = [(record["mask_seed"], record["seed"]) for record in records]
        assert cells == ([(100, 0), (103, 1)] if arm in MASKED else [(None, 0), (None, 1)])
        for record in records:
            assert record["visible_density"] <= record["density"]
            assert record["losses"][0] == pytest.approx(first_losses[record["seed"]]), arm
    full, masked, visible, matched = (records_by_arm[arm] for arm in ("full", "OPD mask", VISIBLE, MATCHED))
    assert full[0]["density"] == 1.0
    for inside, control in zip(masked, matched, strict=True):
        assert inside["density"] == pytest.approx(control["density"], rel=1e-6)
    assert masked[0]["density"] < visible[0]["density"] <= 1
    assert len({record["mask"] for record in (*matched, *masked)}) == 4, "controls are drawn anew"
    assert len({record["mask"] for record in (*masked, *records_by_arm["SFT mask"])}) == 4
    assert masked[0]["optimizer_bytes"] < full[0]["optimizer_bytes"]


def test_masks_are_what_full_runs_with_their_seeds_changed(done: tuple[Path, str]) -> None:
    for origin, objective in (("OPD mask", "reverse KL"), ("SFT mask", "cross entropy")):
        for run in runs(done[0])[origin]:
            name = f"{origin.replace(' ', '-')}-run-{run['mask_seed']}.json"
            record = json.loads((done[0] / "runs" / name).read_text())
            assert (record["objective"], record["seed"], record["density"]) == (objective, run["mask_seed"], 1.0)
            assert run["density"] == record["visible_density"]


def test_tables_are_those_of_the_runs(done: tuple[Path, str]) -> None:
    out, printed = done
    results = json.loads((out / "results.json").read_text())
    assert printed.strip() == (out / "retrain.md").read_text().strip()
    rows = {line.split("|")[1].strip(): line for line in printed.splitlines() if line.startswith("| ")}
    kl = {arm: {(r["mask_seed"], r["seed"]): r["held_out"]["kl"] for r in rs} for arm, rs in runs(out).items()}
    start = results["source"]["held_out"]["kl"]
    for arm in ARMS:
        assert f" {sum(kl[arm].values()) / len(kl[arm]):.4f} |" in rows[arm]
        differences = [value - kl["full"][None, seed] for (_, seed), value in kl[arm].items()]
        mean = sum(differences) / len(differences)
        entry = results["differences_to_full"][arm]["kl"]
        assert entry["mean"] == pytest.approx(mean)
        assert (entry["masks"], entry["seeds"]) == (2 if arm in MASKED else 1, 2)
        half = 12.7062047 * abs(differences[0] - differences[1]) / 2
        assert entry["interval"] == pytest.approx([mean - half, mean + half])
        if arm != "full":
            assert f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]" in rows[arm]
        share = [(start - value) / (start - kl["full"][None, seed]) for (_, seed), value in kl[arm].items()]
        assert results["share_of_gain"][arm]["mean"] == pytest.approx(sum(share) / len(share))
    compared = {(entry["first"], entry["second"]): entry for entry in results["comparisons"]}
    assert {("OPD mask", MATCHED), ("OPD mask", VISIBLE)} <= compared.keys()
    p_values = [entry[endpoint]["p"] for entry in compared.values() for endpoint in ("kl", "p")]
    corrected = [entry[endpoint]["p_corrected"] for entry in compared.values() for endpoint in ("kl", "p")]
    assert min(corrected) == pytest.approx(min(1.0, len(p_values) * min(p_values)))
    assert all(f"{first} - {second}" in rows for first, second in compared)
    assert (out / "retrain.svg").read_text().count("prefers-color-scheme") == 1
