"""What a folder really is that is not the checkpoint it was taken for: the sentence, the next step, the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import Tensor, bf16, f16, f32, make_checkpoint, write_safetensors
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


PAIRS: dict[str, tuple[dict[str, Tensor], Mapping[str, bytes], str, str]] = {
    "adapter": (
        adapter(),
        {"adapter_config.json": b'{"base_model_name_or_path": "Qwen/Qwen3-8B"}'},
        "the target ({path}) is an adapter of 'Qwen/Qwen3-8B', not a whole model: 12 tensors",
        'merge_and_unload().save_pretrained(sys.argv[2])" {path} {path}-merged',
    ),
    "adapter alone": (adapter(), {}, "is an adapter, not a whole model", "merge it with merge_and_unload"),
    "gptq": (gptq(), {"config.json": GPTQ}, "is quantized with 'gptq', as its config.json says: 8 tensors", "16-bit"),
    "no config": (gptq(), {}, "is quantized: 8 tensors such as model.layers.0.self_attn.q_proj.qweight", "16-bit"),
    "nf4": (nf4(), {"config.json": NF4}, "is quantized with 'bitsandbytes'", "16-bit checkpoints"),
    "language model": (
        renamed(lambda name: name.replace("model.", "model.language_model.", 1)),
        {},
        "'model.' at the front became 'model.language_model.' in 5 of 6 tensors",
        "from one model class",
    ),
    "half": (
        {name: f16(tensor[1].shape) for name, tensor in tensors().items()},
        {},
        "the target is stored in F16 and the source in BF16: 6 of 6 tensors",
        "model.to(torch.bfloat16).save_pretrained(...); or add --allow-mismatch",
    ),
    "fused": (
        renamed(lambda name: name.replace("self_attn.q_proj", "self_attn.qkv_proj")),
        {},
        "the target has fused projections, as vLLM has them, such as 'model.layers.0.self_attn.qkv_proj.weight'",
        "name the checkpoint that the engine loads",
    ),
    "megatron": (
        {"decoder.layers.0.self_attention.linear_qkv.weight": bf16((8, 8))},
        {},
        "the target has Megatron's names",
        "Megatron Bridge",
    ),
    "torchtune": ({"layers.0.sa_norm.scale": bf16((8,))}, {}, "torchtune's names", "FullModelHFCheckpointer"),
    "meta": ({"layers.0.attention.wq.weight": bf16((8, 8))}, {}, "the target has Meta's names", "for transformers"),
    "another model": ({"h.0.w": bf16((8, 8))}, {}, "share no tensor name: 6 tensors such as", "that training started"),
}


@pytest.mark.parametrize("case", PAIRS)
def test_a_checkpoint_that_does_not_fit_says_what_it_is(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, case: str
) -> None:
    stored, files, fault, hint = PAIRS[case]
    path = make_checkpoint(tmp_path / "wrong", stored, files=files)
    error = run("extract", pair[0], path, "--name", "x", "--json", status=65).json["error"]
    assert fault.format(path=path) in error["message"]
    assert hint.format(path=path) in error["hint"]


def test_an_adapter_as_the_source_is_named_as_such(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path / "lora", adapter())
    assert f"the source ({path}) is an adapter" in run("extract", path, pair[1], "--name", "x", status=65).err


def test_the_weights_of_an_adapter_alone_lead_to_its_folder(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "lora", adapter(), files={"adapter_config.json": b"{}"})
    weights = (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    told = run("extract", pair[0], weights, "--name", "x", status=65).err
    assert f"name its folder, which is read as the merged model: {folder}" in told


def test_two_adapters_are_compared_like_any_checkpoints(run: Run, tmp_path: Path) -> None:
    paths = [make_checkpoint(tmp_path / name, adapter()) for name in ("one", "two")]
    assert run("extract", *paths, "--name", "x", "--json").json["manifest"]["totals"]["nnz"] == 0


WRAPPED: dict[str, tuple[Callable[[str], str], str]] = {
    "compiled": (lambda name: f"_orig_mod.{name}", "6 tensors under another name: '_orig_mod."),
    "data parallel": (lambda name: f"module.{name}", "6 tensors under another name: 'module."),
    "peft": (lambda name: f"base_model.model.{name}", "6 tensors under another name: 'base_model.model."),
    "layers compiled": (lambda name: name.replace("0.", "0._orig_mod.", 1), "2 tensors under another name"),
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


def test_what_a_renaming_does_not_explain_is_still_listed(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    stored = renamed(lambda name: f"module.{name}")
    path = make_checkpoint(tmp_path / "wrong", {n: t for n, t in stored.items() if "lm_head" not in n})
    told = run("extract", pair[0], path, "--name", "x", status=65).err
    assert "1 tensor does not pair up: lm_head.weight (only in the source)" in told


def test_names_that_say_two_things_are_not_guessed(run: Run, tmp_path: Path) -> None:
    stored = bf16((4, 4))
    source = make_checkpoint(tmp_path / "source", {"w": stored, "model.v": stored})
    target = make_checkpoint(tmp_path / "target", {"model.w": stored, "module.w": stored, "v": stored})
    run("extract", source, target, "--name", "x", status=65)


FILES: dict[str, tuple[bytes, str, str]] = {
    "lfs": (LFS, "a Git LFS pointer, not the weights", "git -C {folder} lfs pull"),
    "html": (HTML, "a web page, not the weights: the download failed", "hf download"),
    "json": (b'{"error": "Repository not found"}', "a JSON text, not the weights", "hf download"),
    "torch": (b"PK\x03\x04" + bytes(200), "a file of torch.save, not safetensors", "mv {folder}/model.safetensors"),
    "gguf": (b"GGUF\x03\0\0\0" + bytes(200), "a GGUF file, not safetensors", "16 bits"),
    "empty": (b"", "the file is empty", "download or copy the checkpoint again"),
    "zeros": (bytes(5000), "the file begins with zeros", "download or copy the checkpoint again"),
    "header": (b"\xe8\x03" + bytes(6) + b'{"w"', "not a safetensors file, or cut short", "again"),
}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_checkpoint_says_what_it_is_and_where(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, case: str, side: str
) -> None:
    data, fault, hint = FILES[case]
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(data)
    paths = (folder, pair[1]) if side == "source" else (pair[0], folder)
    error = run("extract", *paths, "--name", "x", "--json", status=65).json["error"]
    assert error["message"].startswith(f"{side}: {folder}/model.safetensors: {fault}")
    assert hint.format(folder=folder) in error["hint"]


def test_a_file_that_is_cut_short_says_by_how_much(run: Run, pair: tuple[Path, Path]) -> None:
    weights = pair[1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    told = run("extract", *pair, "--name", "x", status=65).err
    assert f"target: {weights}: the file is cut short: 8,220 bytes of data where its header says 8,320" in told


def test_a_header_that_begins_like_another_format_is_a_header(
    run: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    # Its length is 0x280: the bytes 80 02 that also begin a pickle.
    text = json.dumps({"w": {"dtype": "B17", "shape": [], "data_offsets": [0, 0]}}).ljust(0x280).encode()
    (tmp_path / "odd.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    told = run("extract", pair[0], tmp_path / "odd.safetensors", "--name", "x", status=65).err
    assert f"{tmp_path}/odd.safetensors: tensor w has the unknown dtype 'B17'" in told


FOLDERS: dict[str, tuple[str, str, str]] = {
    "trainer": ("optimizer.bin", "only what a trainer keeps beside them ('optimizer.bin')", "model itself was saved"),
    "gguf": ("m.Q4_K_M.gguf", "only GGUF files", "16 bits"),
    "dcp": ("__0_0.distcp", "without .metadata, which is written last: saving did not finish", "the last checkpoint"),
    "fsdp": ("model_world_size_8_rank_0.pt", "the files of 7 of 8 processes are missing: ranks 1, 2", "every node"),
    "flax": ("flax_model.msgpack", "only weights of another library", "16 bits"),
    "other": ("README.md", "no safetensors weights", "a checkpoint directory holds model.safetensors"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_without_weights_says_what_it_holds(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, case: str
) -> None:
    name, fault, hint = FOLDERS[case]
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / name).write_bytes(b"x")
    error = run("extract", pair[0], folder, "--name", "x", "--json", status=66).json["error"]
    assert error["message"].startswith(f"target: {folder}: ")
    assert fault in error["message"]
    assert hint.format(path=folder) in error["hint"]


def test_a_run_whose_checkpoints_are_in_folders_names_the_last(
    run: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    for step in (90, 100):
        (tmp_path / "run" / f"checkpoint-{step}").mkdir(parents=True)
        write_safetensors(tmp_path / "run" / f"checkpoint-{step}" / "model.safetensors", tensors())
    told = run("extract", pair[0], tmp_path / "run", "--name", "x", status=66).err
    assert "no weights here, but in checkpoint-90, checkpoint-100" in told
    assert f"name one of them: {tmp_path}/run/checkpoint-100" in told
    (tmp_path / "nothing").mkdir()
    assert "nothing: an empty folder" in run("extract", pair[0], tmp_path / "nothing", "--name", "x", status=66).err


def test_a_wrong_source_is_told_apart_and_the_right_one_is_named(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    source = run("show", artifact, "--json").json["manifest"]["source"]["root"]
    wrong = make_checkpoint(tmp_path / "wrong", {name: bf16(t[1].shape, 99) for name, t in tensors().items()})
    root = run("extract", wrong, pair[1], "--name", "x", "--json").json["manifest"]["source"]["root"]
    error = run("apply", "toy-opd:v1", "--source", wrong, "-o", tmp_path / "out", "--json", status=65).json["error"]
    assert error["message"].startswith(f"{wrong}: tensor model.embed_tokens.weight: elements 0..799 are not those")
    assert error["message"].endswith(f"; expected root {source[:19]}, found {root[:19]}")
    assert error["hint"] == f"maskreg apply toy-opd:v1 -o {tmp_path / 'out'} --json --source {pair[0]}"
    run(*error["hint"].split()[1:])
    pair[0].rename(tmp_path / "away")
    told = run("apply", "toy-opd:v1", f"--source={wrong}", "-o", tmp_path / "never", status=65).err
    assert f"with root {source[:19]}; last seen on this machine at {pair[0]}, which is gone" in told


def test_the_target_in_place_of_the_source_is_recognized(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    told = run("apply", "toy-opd:v1", "--source", pair[1], "-o", tmp_path / "out", status=65).err
    assert f"{pair[1]}: tensor model.embed_tokens.weight: this checkpoint is already the target" in told
    assert "next: use this checkpoint as it is\n" in told
    told = run("baseline", "toy-opd:v1", "--kind", "exponent-matched", "--source", pair[1], status=65).err
    assert (
        f"{pair[1]}: tensor model.embed_tokens.weight: has the values of the artifact's target, not of its source"
        in told
    )
    assert f"--source {pair[0]}" in told


def test_a_broken_source_is_named_by_its_path(run: Run, artifact: str, tmp_path: Path) -> None:
    (tmp_path / "lfs").mkdir()
    (tmp_path / "lfs" / "model.safetensors").write_bytes(LFS)
    told = run("apply", "toy-opd:v1", "--source", tmp_path / "lfs", "-o", tmp_path / "out", status=65).err
    assert f"source: {tmp_path}/lfs/model.safetensors: a Git LFS pointer" in told


@pytest.mark.parametrize("rule", ["exact", "abs:0.001"])
def test_nan_and_infinity_are_counted_and_said(run: Run, pair: tuple[Path, Path], tmp_path: Path, rule: str) -> None:
    finite = run("extract", *pair, "--name", "finite", "--rule", rule, "--json").json["manifest"]["totals"]
    assert (finite["nonfinite"], finite["nan"], finite["inf"]) == (0, 0, 0)
    name = "model.layers.0.mlp.up_proj.weight"
    # NaN and both infinities in the target; the last pair is NaN in the source alone.
    sides = [tensors(), tensors()]
    sides[0][name][1].reshape(-1)[3] = 0x7FC0
    sides[1][name][1].reshape(-1)[:3] = [0x7FC1, 0x7F80, 0xFF80]
    sides[1]["lm_head.weight"][1].reshape(-1)[0] ^= 0x4000
    paths = [make_checkpoint(tmp_path / f"side{number}", side) for number, side in enumerate(sides)]
    done = run("extract", *paths, "--name", "odd", "--rule", rule)
    for told in (done.out, run("show", "odd").out):
        words = " ".join(told.split())
        assert "the sum of squared differences, without 4 pairs with NaN or infinity" in words
        assert "not finite the target has 1 NaN and 2 infinite values" in words
    note = f"the target has 1 NaN and 2 infinite values in 1 tensor, the first in {name}: the run may have diverged"
    again = run("extract", *paths, "--name", "odd", "--rule", rule, "--json").json
    assert any(text.startswith(note) for text in again["notes"])
    totals = run("show", "odd", "--json").json["manifest"]["totals"]
    assert (totals["nonfinite"], totals["nan"], totals["inf"]) == (4, 1, 2)
    before, after = (side["lm_head.weight"][1].reshape(-1)[:1].astype(np.uint32) << 16 for side in sides)
    moved_by = float(after.view(np.float32)[0]) - float(before.view(np.float32)[0])
    assert totals["energy"] == pytest.approx(moved_by**2, rel=1e-5)
    run("verify", "odd")
    run("apply", "odd", "--source", paths[0], "-o", tmp_path / "out")
