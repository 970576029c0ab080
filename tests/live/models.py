"""Small models of transformers, built from their configurations."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Dinov2Config,
    Dinov2Model,
    GPT2Config,
    GPT2LMHeadModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

TEXT = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def qwen3(**changes: Any) -> torch.nn.Module:
    """Tied embeddings."""
    config = Qwen3Config(**{**TEXT, "head_dim": 8, "tie_word_embeddings": True, **changes})
    model: torch.nn.Module = Qwen3ForCausalLM(config)
    return model


def qwen3_moe() -> torch.nn.Module:
    """Twelve experts, so that their order as text is not their order as numbers; rows that end within a byte."""
    config = Qwen3MoeConfig(
        **TEXT, head_dim=8, moe_intermediate_size=11, num_experts=12, num_experts_per_tok=2, tie_word_embeddings=False
    )
    model: torch.nn.Module = Qwen3MoeForCausalLM(config)
    return model


VISION = {"depth": 2, "hidden_size": 24, "intermediate_size": 40, "num_heads": 4, "out_hidden_size": 24}
PLACES = {"image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}


def qwen2_5_vl() -> torch.nn.Module:
    """A visual tower beside a language model."""
    text = {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}, "tie_word_embeddings": True}
    config = Qwen2_5_VLConfig(
        text_config=text, vision_config={**VISION, "fullatt_block_indexes": [1]}, tie_word_embeddings=True, **PLACES
    )
    model: torch.nn.Module = Qwen2_5_VLForConditionalGeneration(config)
    return model


def qwen3_vl_moe() -> torch.nn.Module:
    """Its experts are stacked in checkpoints too, where published ones have them transposed."""
    rope = {"mrope_section": [1, 1, 1], "rope_type": "default"}
    experts = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 11, "head_dim": 8}
    vision = {**VISION, "deepstack_visual_indexes": [0], "num_position_embeddings": 16}
    config = Qwen3VLMoeConfig(text_config={**TEXT, **experts, "rope_scaling": rope}, vision_config=vision, **PLACES)
    model: torch.nn.Module = Qwen3VLMoeForConditionalGeneration(config)
    return model


def dinov2() -> torch.nn.Module:
    """Its checkpoints have in one tensor what the model has in two."""
    config = Dinov2Config(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, use_swiglu_ffn=True, image_size=28, patch_size=14
    )
    model: torch.nn.Module = Dinov2Model(config)
    return model


def gpt2() -> torch.nn.Module:
    """Weights stored with the input first."""
    model: torch.nn.Module = GPT2LMHeadModel(
        GPT2Config(vocab_size=97, n_positions=16, n_embd=24, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    )
    return model
