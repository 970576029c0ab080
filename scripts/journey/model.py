"""The demo's model: a small Qwen3-like causal language model that reads sums, one character per token.

It downloads nothing: text, vocabulary and weights come from seeds.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHARACTERS = "\n0123456789+="
VOCABULARY = {character: index for index, character in enumerate(CHARACTERS)}
PADDED_VOCABULARY = 16
"""Rounded up, as in real models: rows above ``len(CHARACTERS)`` are unused."""

NUMBERS = range(10, 30)
"""The numbers to add."""

PROMPT_TOKENS = len("\n12+34=")


@dataclass(frozen=True)
class Shape:
    """Sizes of the model, as in its configuration."""

    hidden: int = 128
    ffn: int = 512
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2


def make_model(shape: Shape, seed: int) -> Any:
    """A randomly initialized ``Qwen3ForCausalLM`` in fp32."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(
        vocab_size=PADDED_VOCABULARY,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def load_model(path: Path) -> Any:
    """The checkpoint at ``path`` in fp32, which training uses as master weights."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def save_model(model: Any, path: Path) -> None:
    """Write bf16 safetensors in several shards, like a published checkpoint.

    The model itself stays in fp32.
    """
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    # Sorted: shards follow this order, and that of a new model differs from that of a loaded one.
    state = dict(sorted(rounded.state_dict().items()))
    rounded.save_pretrained(path, state_dict=state, max_shard_size="1MB")
    make_tokenizer().save_pretrained(path)


def make_tokenizer() -> Any:
    """One token per character, like :func:`encode`, for other tools that train the checkpoint."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel(VOCABULARY))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def write_prompts(path: Path) -> None:
    """Write every training question, one JSON object per line."""
    pairs = [(a, b) for a in NUMBERS for b in NUMBERS if not is_held_out(a, b)]
    lines = [json.dumps({"prompt": f"\n{a}+{b}="}) for a, b in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def is_held_out(a: int, b: int) -> bool:
    """Whether a sum is never trained on: one in ten."""
    return (a * 7 + b) % 10 == 0


def questions(count: int, generator: torch.Generator, *, held_out: bool) -> list[tuple[int, int]]:
    """Random pairs of ``NUMBERS``: only held-out ones, or none of them."""
    pairs: list[tuple[int, int]] = []
    while len(pairs) < count:
        draw = torch.randint(NUMBERS.start, NUMBERS.stop, (count, 2), generator=generator).tolist()
        pairs += [(a, b) for a, b in draw if is_held_out(a, b) == held_out]
    return pairs[:count]


def prompts(pairs: list[tuple[int, int]]) -> Tensor:
    """int64 [pairs, PROMPT_TOKENS]: a line break and everything up to the equals sign."""
    return torch.stack([encode(f"\n{a}+{b}=") for a, b in pairs])


def windows(count: int, tokens: int, generator: torch.Generator) -> Tensor:
    """int64 [count, tokens]: lines of correct sums for language modeling."""
    lines = questions(count * (tokens // 9 + 1), generator, held_out=False)
    text = [f"\n{a}+{b}={a + b}" for a, b in lines]
    per_window = len(text) // count
    rows = ["".join(text[row * per_window : (row + 1) * per_window])[:tokens] for row in range(count)]
    return torch.stack([encode(row) for row in rows])


def encode(text: str) -> Tensor:
    """int64 [characters]: one token per character."""
    return torch.tensor([VOCABULARY[character] for character in text])


@torch.no_grad()
def sample(model: Any, start: Tensor, tokens: int, generator: torch.Generator | None) -> Tensor:
    """Continue every row by ``tokens`` tokens: at temperature 1, or greedily without a generator.

    Returns:
        int64 [rows, start + tokens]: prompt and continuation.
    """
    sequence, step, cache = start, start, None
    for _ in range(tokens):
        out = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[:, -1]
        if generator is None:
            step = logits.argmax(-1, keepdim=True)
        else:
            step = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        sequence = torch.cat([sequence, step], dim=1)
    return sequence


def accuracy(model: Any, pairs: list[tuple[int, int]]) -> float:
    """Share of sums that the model answers exactly, decoding greedily."""
    answers = sample(model, prompts(pairs), 4, None)[:, PROMPT_TOKENS:].tolist()
    texts = ["".join(CHARACTERS[i] if i < len(CHARACTERS) else "?" for i in row) for row in answers]
    right = [text.split("\n")[0] == str(a + b) for text, (a, b) in zip(texts, pairs, strict=True)]
    return sum(right) / len(right)
