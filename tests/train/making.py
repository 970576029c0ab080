"""A source, a teacher and a mask small enough to be trained in every test, with a tokenizer that reads sums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.checkpoints import make_checkpoint, moved
from tests.flow.making import stored
from tests.train.small import small_model

WORDS = ["<pad>", "<eos>", *"0123456789+=# "]
TEMPLATE = "{% for m in messages %}# {{ m['content'] }}{% if m['role'] == 'assistant' %}<eos>{% endif %}{% endfor %}"


def make_tokenizer(folder: Path, words: Sequence[str] = WORDS) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("<eos>|."), "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", pad_token="<pad>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def make_model(
    folder: Path, seed: int = 0, dtype: torch.dtype = torch.bfloat16, words: Sequence[str] = WORDS, vocabulary: int = 16
) -> Path:
    """A Qwen3 of two layers, its tokenizer, and its weights in two shards."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 16}
    model = small_model(seed, vocabulary, dtype, **sizes, initializer_range=0.2)
    model.save_pretrained(folder, max_shard_size="20KB")
    make_tokenizer(folder, words)
    return folder


def make_target(source: Path, folder: Path, fraction: float = 0.4) -> Path:
    """The source with some of its coordinates elsewhere: what a mask is extracted from."""
    tensors: dict[str, Any] = {}
    for name, (dtype, shape, data) in stored(source).items():
        bits = torch.frombuffer(bytearray(data), dtype=torch.int16 if dtype == "BF16" else torch.int32).numpy()
        tensors[name] = dtype, bits.view("u2" if dtype == "BF16" else "u4").reshape(shape)
    return make_checkpoint(
        folder, {name: moved(one, fraction, seed=i) for i, (name, one) in enumerate(tensors.items())}
    )


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def sums(path: Path, count: int = 12) -> Path:
    """Prompts with completions."""
    return write_lines(path, [{"prompt": f"# {i}+1=", "completion": str(i + 1)} for i in range(count)])
