"""What a folder really is that is not the checkpoint it was taken for: the sentence, the next step, the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import Tensor, bf16, f16, f32, make_checkpoint
from tests.cli.conftest import Run, tensors

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 16381470720\n"
HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
NF4 = b'{"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true}}'
GPTQ = b'{"quantization_config": {"quant_method": "gptq", "bits": 4}}'


def adapter() -> dict[str, Tensor]:
    return {
        f"base_model.model.{name.removesuffix('.weight')}.lora_{side}.weight": bf16((4, 16))
        for name in tensors()
        for side in "AB"
    }


def gptq() -> dict[str, Tensor]:
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors().items():
        module = name.removesuffix(".weight")
        if "proj" not in name:
            stored[name] = f16(tensor[1].shape)
        else:
            stored[f"{module}.qweight"] = ("I32", np.zeros((2, 16), np.uint32))
            stored[f"{module}.qzeros"] = ("I32", np.zeros((1, 2), np.uint32))
            stored[f"{module}.scales"] = f16((1, 16))
    return stored


def nf4() -> dict[str, Tensor]:
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors().items():
        stored[name] = ("U8", np.zeros((tensor[1].size // 2, 1), np.uint8)) if "proj" in name else tensor
        if "proj" in name:
            stored[f"{name}.absmax"] = f32((4,))
    return stored


def renamed(change: Callable[[str], str]) -> dict[str, Tensor]:
    return {change(name): tensor for name, tensor in tensors().items()}


MODELS: Mapping[str, tuple[dict[str, Tensor], Mapping[str, bytes]]] = {
    "adapter": (adapter(), {"adapter_config.json": b'{"base_model_name_or_path": "Qwen/Qwen3-8B"}'}),
    "adapter-alone": (adapter(), {}),
    "gptq": (gptq(), {"config.json": GPTQ}),
    "no-config": (gptq(), {}),
    "nf4": (nf4(), {"config.json": NF4}),
    "language-model": (renamed(lambda name: name.replace("model.", "model.language_model.", 1)), {}),
    "half": ({name: f16(tensor[1].shape) for name, tensor in tensors().items()}, {}),
    "fused": (renamed(lambda name: name.replace("self_attn.q_proj", "self_attn.qkv_proj")), {}),
    "megatron": ({"decoder.layers.0.self_attention.linear_qkv.weight": bf16((8, 8))}, {}),
    "torchtune": ({"layers.0.sa_norm.scale": bf16((8,))}, {}),
    "meta": ({"layers.0.attention.wq.weight": bf16((8, 8))}, {}),
    "another-model": ({"h.0.w": bf16((8, 8))}, {}),
    "less": ({f"module.{name}": tensor for name, tensor in tensors().items() if "lm_head" not in name}, {}),
}
"""Checkpoints that are no counterpart of the source: tensors, and files beside them."""

WEIGHTS: Mapping[str, bytes] = {
    "lfs": LFS,
    "html": HTML,
    "json": b'{"error": "Repository not found"}',
    "torch": b"PK\x03\x04" + bytes(200),
    "gguf": b"GGUF\x03\0\0\0" + bytes(200),
    "empty": b"",
    "zeros": bytes(5000),
    "header": b"\xe8\x03" + bytes(6) + b'{"w"',
}
"""Files that are called model.safetensors, and are none."""

FILES: Mapping[str, str] = {
    "trainer": "optimizer.bin",
    "only-gguf": "m.Q4_K_M.gguf",
    "dcp": "__0_0.distcp",
    "fsdp": "model_world_size_8_rank_0.pt",
    "flax": "flax_model.msgpack",
    "other": "README.md",
    "run/checkpoint-90": "model.safetensors",
    "run/checkpoint-100": "model.safetensors",
}
"""The one file of a folder without weights."""


def make_wrong(folder: Path) -> None:
    """Each of these in a folder of its own, as ``golden/causes.txt`` names them."""
    for name, (stored, files) in MODELS.items():
        make_checkpoint(folder / name, stored, files=files)
    for name, data in {**WEIGHTS, **dict.fromkeys(FILES, b"x")}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / FILES.get(name, "model.safetensors")).write_bytes(data)
    (folder / "nothing").mkdir()


WRAPPED: dict[str, tuple[Callable[[str], str], str]] = {
    "compiled": (lambda name: f"_orig_mod.{name}", "6 tensors under another name: '_orig_mod."),
    "data parallel": (lambda name: f"module.{name}", "6 tensors under another name: 'module."),
    "peft": (lambda name: f"base_model.model.{name}", "6 tensors under another name: 'base_model.model."),
    "inner model": (lambda name: name.removeprefix("model."), "5 tensors under another name: 'embed_tokens.weight'"),
}


@pytest.mark.parametrize("case", WRAPPED)
def test_names_that_a_wrapper_changed_are_those_of_the_source(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, case: str
) -> None:
    change, note = WRAPPED[case]
    path = make_checkpoint(tmp_path / "wrapped", renamed(change))
    plain = make_checkpoint(tmp_path / "plain", tensors())
    done = run("extract", pair[0], path, "--name", "x", "--json").json
    assert done["digest"] == run("extract", pair[0], plain, "--name", "y", "--json").json["digest"]
    assert [text for text in done["notes"] if text.startswith(f"target: {note}")], done["notes"]
    run("extract", path, pair[1], "--name", "z")
    run("apply", "z", "--source", pair[0], "-o", tmp_path / "out")


def test_names_that_say_two_things_are_not_guessed(run: Run, tmp_path: Path) -> None:
    stored = bf16((4, 4))
    source = make_checkpoint(tmp_path / "source", {"w": stored, "model.v": stored})
    target = make_checkpoint(tmp_path / "target", {"model.w": stored, "module.w": stored, "v": stored})
    run("extract", source, target, "--name", "x", status=65)


def test_a_header_that_begins_like_another_format_is_a_header(
    run: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    # Its length is 0x280: the bytes 80 02 that also begin a pickle.
    text = json.dumps({"w": {"dtype": "B17", "shape": [], "data_offsets": [0, 0]}}).ljust(0x280).encode()
    (tmp_path / "odd.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    told = run("extract", pair[0], tmp_path / "odd.safetensors", "--name", "x", status=65).err
    assert f"{tmp_path}/odd.safetensors: " in told and "'B17'" in told


def test_a_wrong_source_is_told_apart_and_the_right_one_is_named(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    wrong = make_checkpoint(tmp_path / "wrong", {name: bf16(t[1].shape, 99) for name, t in tensors().items()})
    error = run("apply", "toy-opd:v1", f"--source={wrong}", "-o", tmp_path / "o", "--json", status=65).json["error"]
    assert error["hint"] == f"maskreg apply toy-opd:v1 -o {tmp_path / 'o'} --json --source {pair[0]}"
    run(*error["hint"].split()[1:])
    pair[0].rename(tmp_path / "away")
    told = run("apply", "toy-opd:v1", f"--source={wrong}", "-o", tmp_path / "never", status=65).err
    assert f" {pair[0]}" in told


@pytest.mark.parametrize("rule", ["exact", "abs:0.001"])
def test_nan_and_infinity_are_counted_and_said(run: Run, tmp_path: Path, rule: str) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    # NaN and both infinities in the target; the last pair is NaN in the source alone.
    sides = [tensors(), tensors()]
    sides[0][name][1].reshape(-1)[3] = 0x7FC0
    sides[1][name][1].reshape(-1)[:3] = [0x7FC1, 0x7F80, 0xFF80]
    sides[1]["lm_head.weight"][1].reshape(-1)[0] ^= 0x4000
    paths = [make_checkpoint(tmp_path / f"side{number}", side) for number, side in enumerate(sides)]
    done = run("extract", *paths, "--name", "odd", "--rule", rule, "--json").json
    assert any(name in text for text in done["notes"])
    totals = run("show", "odd", "--json").json["manifest"]["totals"]
    assert (totals["nonfinite"], totals["nan"], totals["inf"]) == (4, 1, 2)
    before, after = (side["lm_head.weight"][1].reshape(-1)[:1].astype(np.uint32) << 16 for side in sides)
    moved_by = float(after.view(np.float32)[0]) - float(before.view(np.float32)[0])
    assert totals["energy"] == pytest.approx(moved_by**2, rel=1e-5)
    run("verify", "odd")
    run("apply", "odd", "--source", paths[0], "-o", tmp_path / "out")
