"""SHiRA adapters: loaded and merged by PEFT into a model of transformers, and refused where the mask does not fit."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import maskreg
from maskreg.errors import FormatError, UsageError
from tests.checkpoints import Tensor, bf16, make_checkpoint

Q, UP = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"


def moved_in(tensor: Tensor, count: int, seed: int) -> Tensor:
    """A copy in which ``count`` coordinates are other numbers of like size."""
    dtype, bits = tensor
    rng = np.random.default_rng(seed)
    flat = bits.reshape(-1).copy()
    flat[rng.choice(flat.size, count, replace=False)] ^= rng.integers(1, 64, count).astype(np.uint16)
    return dtype, flat.reshape(bits.shape)


@pytest.fixture
def space(tmp_path: Path) -> Any:
    with maskreg.Workspace(maskreg.Settings(home=tmp_path / "home", config_path=tmp_path / "c.toml")) as space:
        yield space


CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}).encode()  # fmt: skip
TINY: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
GPT2 = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_inner": 24, "vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0}
MOE = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "decoder_sparse_step": 1}
VISION = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 16}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**TINY, "tie_word_embeddings": False}),
    "qwen2": ("Qwen2", {**TINY, "tie_word_embeddings": True}),
    "gpt2": ("GPT2", GPT2),
    "qwen3-moe": ("Qwen3Moe", {**TINY, **MOE, "head_dim": 8}),
    "qwen2.5-vl": ("Qwen2_5_VL", {"text_config": TINY, "vision_config": VISION, "tie_word_embeddings": False}),
}
"""Tiny models: what their classes in transformers begin with, and their configurations."""


def saved(name: str, folder: Path) -> dict[str, Tensor]:
    """A tiny model of random weights, saved by transformers; its tensors."""
    import torch
    import transformers

    torch.manual_seed(0)
    begin, values = MODELS[name]
    head = {"gpt2": "LMHeadModel", "qwen2.5-vl": "ForConditionalGeneration"}.get(name, "ForCausalLM")
    model = getattr(transformers, begin + head)(getattr(transformers, f"{begin}Config")(**values))
    model.to(torch.bfloat16).save_pretrained(folder)
    with maskreg.open_checkpoint(folder) as checkpoint:
        return {
            name: (info.dtype, checkpoint.read(name, 0, info.numel).reshape(info.shape).copy())
            for name, info in checkpoint.tensors.items()
        }


def trained(folder: Path, target: dict[str, Tensor], space: maskreg.Workspace) -> maskreg.Stored:
    """The update from ``source`` to a target with its small files."""
    files = {file.name: file.read_bytes() for file in (folder / "source").glob("*.json")}
    make_checkpoint(folder / "target", target, files=files)
    return maskreg.extract(folder / "source", folder / "target", "toy", workspace=space)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("model", "fits"),
    [
        ("llama", True),
        ("qwen2", True),
        ("qwen2.5-vl", False),
        ("qwen3-moe", True),
    ],
)
def test_peft_loads_and_merges_it_into_a_model(
    tmp_path: Path, space: maskreg.Workspace, model: str, fits: bool
) -> None:
    import torch
    import transformers
    from peft import PeftModel

    tensors = saved(model, tmp_path / "source")
    parts = ("proj", "lm_head", "visual.blocks.0.attn.qkv", "merger.mlp")
    matrices = [name for name, (_, bits) in tensors.items() if bits.ndim == 2 and ".experts." not in name]
    linear = [name for name in matrices if any(part in name for part in parts)]
    target = dict(tensors)
    for seed, name in enumerate(linear):
        count = 2 * sum(tensors[name][1].shape) + (0 if fits else 3 * seed - 4)
        target[name] = moved_in(tensors[name], count, seed)
    toy = trained(tmp_path, target, space)
    out = tmp_path / "adapter"
    converted = maskreg.convert_to("toy", "shira", out, options={"nearest": not fits}, workspace=space)
    assert json.loads((out / "adapter_config.json").read_text())["r"] == 2
    if fits:
        assert converted.notes == ()
        assert converted.coordinates == toy.manifest.totals.nnz
    back = maskreg.convert_from(out, "shira", tmp_path / "source", "back", workspace=space)
    assert (back.digest == toy.digest) == fits
    kind = getattr(transformers, json.loads((tmp_path / "source" / "config.json").read_text())["architectures"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = kind.from_pretrained(tmp_path / "source", dtype=torch.bfloat16)
        merged = PeftModel.from_pretrained(base, str(out)).merge_and_unload()
    # Saved again, and so under the checkpoint's names.
    merged.save_pretrained(tmp_path / "merged")
    maskreg.apply("back", tmp_path / "source", tmp_path / "patched", workspace=space)
    with (
        maskreg.open_checkpoint(tmp_path / "patched") as expected,
        maskreg.open_checkpoint(tmp_path / "merged") as found,
    ):
        for name, info in expected.tensors.items():
            bits = expected.read(name, 0, info.numel)
            assert np.array_equal(found.read(name, 0, info.numel), bits), name
            if fits:
                assert np.array_equal(bits, target[name][1].reshape(-1)), name


REFUSED = {
    "gpt2": ("transformer.h.0.attn.c_attn.weight", "Conv1D"),
    "qwen3-moe": ("model.layers.0.mlp.gate.weight", "Qwen3MoeTopKRouter"),
    "qwen2": ("model.embed_tokens.weight", "Embedding"),
}
"""Matrices of modules that PEFT's SHiRA does not take."""


@pytest.mark.torch
@pytest.mark.parametrize("model", REFUSED)
def test_a_module_that_peft_does_not_take_is_refused_by_name(
    tmp_path: Path, space: maskreg.Workspace, model: str
) -> None:
    name, kind = REFUSED[model]
    tensors = saved(model, tmp_path / "source")
    trained(tmp_path, {**tensors, name: moved_in(tensors[name], sum(tensors[name][1].shape), 1)}, space)
    for options in ({}, {"nearest": True}):
        with pytest.raises(UsageError, match=rf"{re.escape(name)} \({kind}\)") as caught:
            maskreg.convert_to("toy", "shira", tmp_path / "out", options=options, workspace=space)
        assert caught.value.hint
        assert not (tmp_path / "out").exists()


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, Tensor]:
    """Tensors of a source with two linear layers; it is at ``source``."""
    tensors = {f"{Q}.weight": bf16((16, 16), 1), f"{UP}.weight": bf16((24, 16), 2), "model.norm.weight": bf16((16,), 3)}
    make_checkpoint(tmp_path / "source", tensors, files={"config.json": CONFIG})
    return tensors


def extracted(folder: Path, space: maskreg.Workspace, target: dict[str, Tensor]) -> str:
    make_checkpoint(folder / "target", target, files={"config.json": CONFIG})
    maskreg.extract(folder / "source", folder / "target", "toy", workspace=space)
    return "toy"


@pytest.mark.torch
def test_a_mask_that_does_not_fit_is_refused(tmp_path: Path, space: maskreg.Workspace, pair: dict[str, Tensor]) -> None:
    q, up, norm = f"{Q}.weight", f"{UP}.weight", "model.norm.weight"
    out = tmp_path / "out"
    cases: list[tuple[dict[str, Tensor], str]] = [
        ({q: moved_in(pair[q], 32, 1), up: moved_in(pair[up], 41, 2)}, rf"{up} has 41 in 24 x 16, so r would be 1.025"),
        ({q: moved_in(pair[q], 31, 1)}, rf"{q} has 31 in 16 x 16, so r would be 0.96"),
        ({q: moved_in(pair[q], 64, 1), up: moved_in(pair[up], 40, 2)}, "r would be 1, and 2 in"),
        ({norm: moved_in(pair[norm], 3, 1)}, f"linear layers of 16 bits alone, not {norm}"),
        ({}, "nothing changes"),
    ]
    for changes, message in cases:
        toy = extracted(tmp_path, space, {**pair, **changes})
        with pytest.raises(UsageError, match=message) as caught:
            maskreg.convert_to(toy, "shira", out, workspace=space)
        assert caught.value.hint
        assert not out.exists()
    pair[q][1][0, 0] = 0x0000
    make_checkpoint(tmp_path / "source", pair, files={"config.json": CONFIG})
    signed = pair[q][1].copy()
    signed[0, 0] = 0x8000
    signed[0, 1:] ^= 1
    signed[1, :] ^= 1
    toy = extracted(tmp_path, space, {**pair, q: ("BF16", signed)})
    with pytest.raises(UsageError, match=rf"tensor {q}: 1 change that no addition gives"):
        maskreg.convert_to(toy, "shira", out, workspace=space)
    assert not out.exists()


@pytest.mark.torch
def test_the_nearest_adapter_keeps_the_largest_changes(
    tmp_path: Path, space: maskreg.Workspace, pair: dict[str, Tensor]
) -> None:
    q, up, norm = f"{Q}.weight", f"{UP}.weight", "model.norm.weight"
    target = {q: moved_in(pair[q], 50, 1), up: moved_in(pair[up], 30, 2), norm: moved_in(pair[norm], 3, 3)}
    toy = extracted(tmp_path, space, target)
    converted = maskreg.convert_to(toy, "shira", tmp_path / "out", options={"nearest": True}, workspace=space)
    # 80 changes of 72 r: r is 1, so 32 of the 50 stay, and 10 are filled in to make 40.
    assert converted.notes == (
        "r = 1: 18 changes left out, 10 unchanged coordinates filled in",
        f"left out, for they are no linear layers: {norm} (LlamaRMSNorm)",
    )
    assert converted.coordinates == 62
    arrays = load_file(tmp_path / "out" / "adapter_model.safetensors")
    sizes = np.abs(arrays[f"base_model.model.{Q}.shira_weight"])
    before, after = ((tensors[q][1].astype(np.uint32) << 16).view(np.float32) for tensors in (pair, target))
    changes = np.sort(np.abs(after - before).reshape(-1))[::-1]
    assert np.array_equal(np.sort(sizes)[::-1], changes[:32])
    assert arrays[f"base_model.model.{UP}.shira_indices"].shape == (2, 40)
    with pytest.raises(UsageError, match="room for r = 8 at most"):
        options = {"nearest": True, "rank": 9}
        maskreg.convert_to(toy, "shira", tmp_path / "more", options=options, workspace=space)
    with pytest.raises(UsageError, match="a rank is a choice"):
        maskreg.convert_to(toy, "shira", tmp_path / "more", options={"rank": 2}, workspace=space)
    words = {"nearest": "true", "rank": "2"}
    converted = maskreg.convert_to(toy, "shira", tmp_path / "more", options=words, workspace=space)
    assert converted.notes[0] == "r = 2: 0 changes left out, 64 unchanged coordinates filled in"


BAD: dict[str, tuple[Any, Any, str]] = {
    "row": ([[16], [0]], [0.5], "index 16 is not within a dimension of 16"),
    "column": ([[0], [16]], [0.5], "index 16 is not within a dimension of 16"),
    "negative": ([[0], [-1]], [0.5], "index -1 is not within a dimension of 16"),
    "twice": ([[1, 1], [2, 2]], [0.5, 0.5], "index 18 appears twice"),
    "order": ([[2, 1], [2, 2]], [0.5, 0.5], "not in ascending order"),
    "counts": ([[2, 1], [2, 2]], [0.5], r"indices \[2, 2\] with values \[1\]"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_hostile_adapter_is_refused_by_name(
    tmp_path: Path, space: maskreg.Workspace, pair: dict[str, Tensor], kind: str
) -> None:
    indices, values, message = BAD[kind]
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "SHIRA", "r": 1}')
    layer = f"base_model.model.{Q}"
    arrays = {
        f"{layer}.shira_indices": np.array(indices, np.int32),
        f"{layer}.shira_weight": np.array(values, np.float32),
    }
    save_file(arrays, adapter / "adapter_model.safetensors")
    with pytest.raises(FormatError, match=rf"tensor {Q}\.weight: .*{message}"):
        maskreg.convert_from(adapter, "shira", tmp_path / "source", "back", workspace=space)


def test_what_is_no_shira_adapter_is_refused(tmp_path: Path, space: maskreg.Workspace, pair: dict[str, Tensor]) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1}')
    with pytest.raises(FormatError, match="peft_type is 'LORA', not SHIRA"):
        maskreg.convert_from(adapter, "shira", tmp_path / "source", "back", workspace=space)
    (adapter / "adapter_config.json").write_text('{"peft_type": "SHIRA", "r": 1}')
    save_file({"base_model.model.x.lora_A.weight": np.ones(3)}, adapter / "adapter_model.safetensors")
    with pytest.raises(FormatError, match=r"tensor '\S+lora_A\.weight': neither indices nor values"):
        maskreg.convert_from(adapter, "shira", tmp_path / "source", "back", workspace=space)
