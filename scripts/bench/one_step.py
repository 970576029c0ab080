"""A pair of real weights one optimizer step apart: a small model in on-policy distillation, trained once and kept.

The run is that of ``scripts/reproduce`` on all coordinates: AdamW on fp32 master weights. The pair is the bf16 weights
before and after one of its steps, when the optimizer's moments have settled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from torch import set_num_threads

from maskreg.train.recipes.rollout import Randomness, Sampling, sample
from scripts.bench.folders import cache_folder, fill_once
from scripts.reproduce.masks import FULL, open_mask
from scripts.reproduce.setting import Setting, batches
from scripts.reproduce.student import PAD, Student, lessons, reverse_kl_of
from scripts.reproduce.training import Job, optimizer_of, teacher_of

STEPS, BATCH, SEED = 41, 48, 0


def pair(checkpoints: Path, cache: Path | None, say: Callable[[str], None]) -> tuple[Path, Path]:
    """Folders of the weights before and after the last step; trained if they are not in the cache.

    Args:
        checkpoints: folder with ``source`` and ``teacher``, as ``scripts/reproduce`` takes it.
        cache: folder to keep the pair in; None for the user's cache folder.
        say: receives progress messages.
    """
    digest = hashlib.sha256()
    for path in sorted(path for name in ("source", "teacher") for path in (checkpoints / name).glob("*.safetensors")):
        digest.update(path.read_bytes())
    folder = cache_folder(cache) / f"one-step-{digest.hexdigest()[:12]}"
    fill_once(folder, lambda unfinished: _train(Setting(str(checkpoints)), unfinished, say))
    return folder / "before", folder / "after"


def _train(setting: Setting, out: Path, say: Callable[[str], None]) -> None:
    # Sums in another order are other sums: with one thread everybody gets the same pair.
    set_num_threads(1)
    mask, _ = open_mask(FULL, setting, out)
    student, teacher = Student(setting.path("source")), teacher_of(setting.path("teacher"))
    optimizer = optimizer_of(student, mask, Job("full", SEED, FULL, setting.lr), setting)
    training, _ = lessons(setting.path("source"))
    for step, chosen in enumerate(batches(len(training.prompts), BATCH, STEPS, SEED)):
        if step == STEPS - 1:
            student.weights.save_pretrained(out / "before")
        prompts = [training.prompts[number] for number in chosen]
        sampling = Sampling(setting.tokens, [training.end], PAD)
        rollout = sample(student.compute, prompts, sampling, Randomness(SEED, step))
        loss = reverse_kl_of(student.compute, teacher, rollout)
        loss.backward()  # type: ignore[no-untyped-call]
        student.hand_back()
        optimizer.step()
        student.refresh()
        say(f"one step: {step + 1}/{STEPS}, reverse KL {loss.item():.4f} nats")
    student.weights.save_pretrained(out / "after")
