"""TRL's trainers on a small Qwen3: a run of each, on a mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from maskreg.train.hooks.trainer import MaskCallback, masked_adamw
from tests.live.models import qwen3
from tests.train.counting import changed, copies
from tests.train.optim.training import masked

pytestmark = [
    pytest.mark.usefixtures("quiet", "silenced"),
    # TRL calls transformers by names of before 5.23, and sets them itself.
    pytest.mark.filterwarnings(r"ignore:`(is_)?gradient_checkpointing(_\w+)?` is deprecated:FutureWarning"),
]

SPECIAL = ["<pad>", "<eos>"]
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)
CHANGES = {"vocab_size": len(SPECIAL) + len(LETTERS), "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}


@pytest.fixture
def silenced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    yield


def tokenizer_of() -> PreTrainedTokenizerFast:
    """A token for each byte."""
    letters = Tokenizer(models.BPE({token: n for n, token in enumerate([*SPECIAL, *LETTERS])}, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def question(n: int) -> dict[str, str]:
    return {"role": "user", "content": f"{n}+{n}?"}


def chats() -> Dataset:
    answers = [{"role": "assistant", "content": str(2 * n)} for n in range(16)]
    return Dataset.from_list([{"messages": [question(n), answer]} for n, answer in enumerate(answers)])


def prompts() -> Dataset:
    return Dataset.from_list([{"prompt": [question(n)]} for n in range(16)])


def model_of(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return qwen3(**CHANGES).to(torch.bfloat16)


def options_of(directory: Path, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "output_dir": str(directory),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "max_steps": 2,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return options | changes


def sft(directory: Path, model: torch.nn.Module) -> Any:
    args = SFTConfig(**options_of(directory), max_length=64)
    return SFTTrainer(model=model, args=args, train_dataset=chats(), processing_class=tokenizer_of())


def grpo(directory: Path, model: torch.nn.Module) -> Any:
    def length(completions: list[Any], **_: object) -> list[float]:
        return [float(len(completion[0]["content"])) for completion in completions]

    args = GRPOConfig(**options_of(directory), num_generations=2, max_completion_length=4)
    return GRPOTrainer(
        model=model, args=args, reward_funcs=length, train_dataset=prompts(), processing_class=tokenizer_of()
    )


def gkd(directory: Path, model: torch.nn.Module) -> Any:
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    args = GKDConfig(**options_of(directory), max_length=64, max_new_tokens=4, lmbda=1.0, beta=1.0)
    return GKDTrainer(
        model=model, teacher_model=model_of(7), args=args, train_dataset=chats(), processing_class=tokenizer_of()
    )


def gold(directory: Path, model: torch.nn.Module) -> Any:
    from trl.experimental.gold import GOLDConfig, GOLDTrainer

    args = GOLDConfig(**options_of(directory), max_length=64, max_completion_length=4, lmbda=1.0)
    return GOLDTrainer(
        model=model, teacher_model=model_of(7), args=args, train_dataset=chats(), processing_class=tokenizer_of()
    )


@pytest.mark.parametrize("make", [sft, grpo, gkd, gold], ids=lambda make: make.__name__)
def test_a_run_moves_masked_coordinates_alone(make: Callable[[Path, torch.nn.Module], Any], tmp_path: Path) -> None:
    model = model_of()
    mask, before = masked(model), copies(model)
    trainer = make(tmp_path, model)
    trainer.optimizer_cls_and_kwargs = masked_adamw(trainer.args, mask, gradients="packed")
    trainer.add_callback(MaskCallback())
    trainer.train()
    outside, inside = changed(model, before, mask)
    assert outside == 0 < inside
