"""LoRA adapters of the real library are read as the model that it merges."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import maskreg
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import FormatError, NotFoundError, PairMismatchError
from tests.checkpoints import bf16, make_checkpoint

if TYPE_CHECKING:
    import torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"r": 8, "lora_alpha": 12, "target_modules": ["q_proj", "up_proj"]},
    "root of the rank": {"r": 5, "lora_alpha": 7, "target_modules": "all-linear", "use_rslora": True},
    "patterns": {
        "r": 4,
        "target_modules": ["q_proj", "down_proj"],
        "rank_pattern": {"layers.1.self_attn.q_proj": 9},
        "alpha_pattern": {r"layers\.\d.mlp.down_proj": 3},
    },
    "embedding": {"r": 6, "target_modules": ["embed_tokens", "k_proj"]},
    "saved whole": {"r": 4, "target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
}


def base_model(folder: Path, dtype: str = "bfloat16") -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=211, hidden_size=48, intermediate_size=100, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


def adapt(base: Path, folder: Path, options: dict[str, Any], half: bool = False) -> dict[str, torch.Tensor]:
    """Save an adapter on a base; the state dict that merging it gives."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), LoraConfig(**options))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    if half:
        model.bfloat16()
    model.save_pretrained(str(folder))
    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), str(folder))
    merged: dict[str, torch.Tensor] = again.merge_and_unload().state_dict()
    return merged


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_model(tmp_path_factory.mktemp("adapter") / "base")


@pytest.mark.parametrize("case", OPTIONS)
def test_an_adapter_is_what_peft_merges(base: Path, tmp_path: Path, case: str) -> None:
    import torch

    merged = adapt(base, tmp_path / "lora", OPTIONS[case])
    moved = 0
    with open_checkpoint(tmp_path / "lora") as checkpoint, open_checkpoint(base) as before:
        assert checkpoint.format == "adapter"
        assert set(checkpoint.tensors) == set(merged)
        for name, info in checkpoint.tensors.items():
            expected = merged[name].reshape(-1).view(torch.int16).numpy().view("<u2")
            assert info.shape == tuple(merged[name].shape)
            assert checkpoint.read(name, 0, info.numel).tobytes() == expected.tobytes(), name
            for start, stop in ((1, info.numel), (7, info.numel - 5), (info.numel // 3, info.numel // 3 + 1)):
                assert checkpoint.read(name, start, stop).tobytes() == expected[start:stop].tobytes(), name
            moved += int((before.read(name, 0, info.numel) != expected).sum())
    assert moved > 1000


def test_an_adapter_in_half_precision_on_a_base_in_fp32(tmp_path: Path) -> None:
    merged = adapt(base_model(tmp_path / "base", "float32"), tmp_path / "lora", OPTIONS["plain"], half=True)
    with open_checkpoint(tmp_path / "lora") as checkpoint:
        for name, info in checkpoint.tensors.items():
            assert info.dtype == "F32"
            expected = merged[name].reshape(-1).numpy()
            # Processors differ in the order in which they sum a product, which fp32 shows in its last bits.
            read = np.frombuffer(checkpoint.read(name, 0, info.numel).tobytes(), np.float32)
            np.testing.assert_allclose(read, expected, rtol=0, atol=2**-22 * np.abs(expected).max(), err_msg=name)


def test_an_adapter_is_extracted_as_its_merged_model(base: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    merged = adapt(base, tmp_path / "lora", OPTIONS["plain"])
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    model.load_state_dict(merged)
    model.save_pretrained(tmp_path / "merged")
    expected = maskreg.extract(base, tmp_path / "merged")
    extracted = maskreg.extract(base, tmp_path / "lora")
    assert extracted.digest == expected.digest
    assert extracted.notes[0].startswith(f"target: 4 tensors with a LoRA adapter merged in, on {base}")
    # The model that it names is gone: the source takes its place.
    config = tmp_path / "lora" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": "/data/gone"}))
    assert maskreg.extract(base, tmp_path / "lora").digest == expected.digest
    with pytest.raises(NotFoundError, match=r"the base model of this adapter .*/data/gone.* is not here"):
        open_checkpoint(tmp_path / "lora")


def edited(base: Path, folder: Path, rows: int = 6, columns: int = 5, **changes: Any) -> Path:
    """A made-up adapter on ``q_proj`` of a made-up base, its configuration changed."""
    name = "model.layers.0.self_attn.q_proj"
    make_checkpoint(base, {f"{name}.weight": bf16((rows, columns))})
    config = {"peft_type": "LORA", "lora_alpha": 4, "base_model_name_or_path": str(base), **changes}
    shapes = {"A": (2, columns), "B": (rows, 2)}
    factors = {f"base_model.model.{name}.lora_{factor}.weight": bf16(shape) for factor, shape in shapes.items()}
    make_checkpoint(folder, factors, files={"adapter_config.json": json.dumps(config).encode()})
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"peft_type": "IA3"}, "an adapter of the kind 'IA3'"),
        ({"use_dora": True}, "an adapter with use_dora"),
        ({"a_later_option": 3}, "an adapter with a_later_option"),
        ({"init_lora_weights": "pissa"}, "began as 'pissa', which changes the base model too"),
        ({"bias": "all"}, "trained biases"),
        ({"lora_alpha": None}, "the scaling None is no number"),
        ({"lora_alpha": "x"}, "the scaling 'x' is no number"),
        ({"alpha_pattern": {"(a+)+b*c*": 1}}, "is too complex"),
        ({"alpha_pattern": {"(": 1}}, "is malformed"),
        ({"base_model_name_or_path": 3}, "a malformed configuration"),
    ],
)
def test_an_adapter_that_cannot_be_merged_says_why(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    folder = edited(tmp_path / "base", tmp_path / "lora", **changes)
    with pytest.raises(FormatError) as caught:
        open_checkpoint(folder)
    assert fault in caught.value.message
    assert caught.value.message.startswith(f"{folder}/adapter_config.json: ")
    assert "merge_and_unload" in caught.value.hint


def test_an_adapter_of_another_model_or_of_an_adapter(tmp_path: Path) -> None:
    folder = edited(tmp_path / "base", tmp_path / "lora", base_model_name_or_path=str(tmp_path / "lora"))
    with pytest.raises(FormatError, match="an adapter on an adapter"):
        open_checkpoint(folder)
    edited(tmp_path / "base", folder)
    for name, shape in (("model.layers.0.self_attn.q_proj.weight", (7, 5)), ("other", (6, 5))):
        make_checkpoint(tmp_path / "base", {name: bf16(shape)})
        with pytest.raises(PairMismatchError, match=r"do not make|does not have") as caught:
            open_checkpoint(folder)
        assert caught.value.message.startswith(f"{folder}: the adapter changes ")


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    peaks = []
    for rows in (1 << 10, 1 << 12):
        folder = edited(tmp_path / f"base{rows}", tmp_path / f"lora{rows}", rows, 1 << 10)
        with open_checkpoint(folder) as checkpoint:
            ((stored, info),) = checkpoint.tensors.items()
            tracemalloc.start()
            for start in range(0, info.numel, 1 << 18):
                checkpoint.read(stored, start, start + (1 << 18))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
