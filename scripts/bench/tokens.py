"""CPU time a token of SFTTrainer, masked and not: ``python -m scripts.bench.tokens [float32 [RECORDS LENGTH]]``.

A random Qwen3 of 91 M parameters, a random mask of density 0.4, steps of 4 x 128 tokens. Trainers take turns, two steps
each. Other work on the machine makes threads wait, which OMP_WAIT_POLICY=PASSIVE keeps from counting as CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl import SFTConfig, SFTTrainer

from maskreg.train.hooks.trainer import MaskCallback, masked_adamw
from tests.train.making import make_tokenizer
from tests.train.optim.training import masked

ROUNDS, STEPS = 6, 2
SIZES: dict[str, int] = {
    "vocab_size": 34304, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 10,
    "num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 64,
}  # fmt: skip
KINDS: Mapping[str, dict[str, Any] | None] = {
    "adamw_torch_fused": None,
    "adamw_torch": None,
    "packed": {"gradients": "packed"},
    "dense": {"gradients": "dense"},
    "packed, bf16 moments": {"gradients": "packed", "moments": "bf16"},
}
"""PyTorch's optimizers by Trainer's name, and options of ours."""


class _Timer(TrainerCallback):  # type: ignore[misc]
    """CPU and wall seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[tuple[float, float]] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        self._begun = time.process_time(), time.perf_counter()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.seconds.append((time.process_time() - self._begun[0], time.perf_counter() - self._begun[1]))


def trainer(kind: str, dtype: torch.dtype, records: int, length: int, folder: str) -> tuple[SFTTrainer, _Timer]:
    """A trainer of its own model, and what times it."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True)).to(dtype)
    tokens = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (64, length))
    options = KINDS[kind]
    args = SFTConfig(
        output_dir=folder, per_device_train_batch_size=records, max_steps=STEPS, max_length=length, learning_rate=1e-6,
        gradient_checkpointing=False, bf16=False, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True,
        optim="adamw_torch" if options else kind,
    )  # fmt: skip
    data = Dataset.from_list([{"input_ids": line} for line in tokens.tolist()])
    words = AutoTokenizer.from_pretrained(folder)
    made, timer = SFTTrainer(model=model, args=args, train_dataset=data, processing_class=words), _Timer()
    if options:
        made.optimizer_cls_and_kwargs = masked_adamw(args, masked(model, 0.4), **options)
        made.add_callback(MaskCallback())
    made.remove_callback(PrinterCallback)
    made.add_callback(timer)
    return made, timer


def main() -> None:
    dtype, records, length = (*sys.argv[1:], *["bfloat16", "4", "128"][len(sys.argv) - 1 :])
    size = int(records), int(length)
    with TemporaryDirectory() as folder:
        make_tokenizer(Path(folder))
        trainers = {kind: trainer(kind, getattr(torch, dtype), *size, folder) for kind in KINDS}
        for turn in range(ROUNDS + 1):
            for kind in list(KINDS)[:: 1 - 2 * (turn % 2)]:
                trainers[kind][0].train()
    figures = {
        kind: [median(each) / size[0] / size[1] for each in zip(*timer.seconds[STEPS:], strict=True)]
        for kind, (_, timer) in trainers.items()
    }
    first, *_ = figures.values()
    for kind, (cpu, wall) in figures.items():
        print(
            f"{kind}: {1e3 * cpu:.2f} CPU ms a token ({first[0] / cpu:.2f} x the tokens of the first),"
            f" {1 / wall:.0f} tokens/s ({first[1] / wall:.2f} x)"
        )


if __name__ == "__main__":
    main()
