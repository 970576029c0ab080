"""A causal language model small enough for every test."""

from typing import Any

import torch

PAD, END = 0, 1
VOCABULARY = 24


def small_model(seed: int = 0, vocabulary: int = VOCABULARY, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    from transformers import AutoModelForCausalLM, Qwen3Config

    options: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": END,
        "initializer_range": 0.5,
    }
    config = Qwen3Config(**options | changes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=dtype)
