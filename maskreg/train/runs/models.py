"""Models, configurations and tokenizers, loaded by Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import DataError, NotFoundError
from maskreg.extras import requiring
from maskreg.live.memory import DTYPES
from maskreg.tensors.info import FLOAT


def stored_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """The dtype of most of a checkpoint's parameters."""
    counts: dict[str, int] = {}
    for info in checkpoint.tensors.values():
        if info.dtype in FLOAT:
            counts[info.dtype] = counts.get(info.dtype, 0) + info.numel
    if not counts:
        raise DataError(f"{checkpoint.path}: no tensors of 16-bit or wider floating-point numbers to train")
    return DTYPES[max(counts, key=lambda name: counts[name])]


def load_model(path: str | Path, dtype: torch.dtype) -> torch.nn.Module:
    """A causal language model on the CPU, in training mode."""
    with _loading(path, "config.json") as library:
        return library.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).train()  # type: ignore[no-any-return]


def load_config(path: str | Path) -> Any:
    """A model's configuration."""
    with _loading(path, "config.json") as library:
        return library.AutoConfig.from_pretrained(path)


def load_tokenizer(path: str | Path) -> Any:
    """A tokenizer."""
    with _loading(path, "tokenizer_config.json") as library:
        return library.AutoTokenizer.from_pretrained(path)


@contextmanager
def _loading(path: str | Path, needed: str) -> Iterator[Any]:
    with requiring("training"):
        import transformers
    if not (Path(path) / needed).is_file():
        raise NotFoundError(
            f"{path}: no {needed}: training needs the folder of a checkpoint, with configuration and tokenizer",
            hint=f"add {needed} to the folder",
        )
    transformers.utils.logging.disable_progress_bar()
    try:
        yield transformers
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(
            f"{path}: transformers cannot load it ({error})",
            hint="copy the whole checkpoint again, or: pip install --upgrade transformers",
        ) from error
