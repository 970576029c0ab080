"""Hugging Face's Trainer on a small Qwen3."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer, TrainerCallback, TrainingArguments

from maskreg.errors import CorruptError
from maskreg.mask.packed import Mask
from maskreg.train import MaskedAdamW
from maskreg.train.hooks.trainer import MaskCallback, masked_adamw
from tests.live import models
from tests.train.counting import changed, copies
from tests.train.optim.training import masked
from tests.train.training import rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator is found:UserWarning"),
    pytest.mark.usefixtures("quiet"),
]


def arguments(directory: Path, **changes: Any) -> TrainingArguments:
    options: dict[str, Any] = {
        "output_dir": str(directory),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "max_steps": 4,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "seed": 3,
        "disable_tqdm": True,
        "lr_scheduler_type": "linear",
    }
    return TrainingArguments(**options | changes)


def model_of(dtype: torch.dtype = torch.bfloat16) -> torch.nn.Module:
    torch.manual_seed(0)
    return models.qwen3().to(dtype)


def trainer_of(
    model: torch.nn.Module, args: TrainingArguments, mask: Mask, *callbacks: TrainerCallback, **options: Any
) -> Trainer:
    data = {"train_dataset": rows(), "eval_dataset": rows()}
    factory = masked_adamw(args, mask, **options)
    return Trainer(model, args, **data, optimizer_cls_and_kwargs=factory, callbacks=list(callbacks) or [MaskCallback()])


def test_gradients_of_both_kinds_train_alike_and_log_the_norm_of_what_is_trained(tmp_path: Path) -> None:
    results, norms = [], []
    for gradients in ("dense", "packed"):
        model = model_of(torch.float32)
        trainer = trainer_of(model, arguments(tmp_path), masked(model), gradients=gradients)
        trainer.train()
        results.append(copies(model))
        norms.append([row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row])
    for name, p in results[0].items():
        torch.testing.assert_close(p, results[1][name], rtol=0, atol=2e-3)
    assert len(norms[0]) == 4
    assert min(norms[0]) > 0
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def test_clipping_is_left_to_the_optimizer(tmp_path: Path) -> None:
    args = arguments(tmp_path, max_grad_norm=0.25, adam_beta2=0.9)
    cls, options = masked_adamw(args, {})
    assert cls is MaskedAdamW
    assert options == {"lr": 1e-2, "betas": (0.9, 0.9), "eps": 1e-8, "max_grad_norm": 0.25, "mask": {}}
    assert args.max_grad_norm == 0
    for again in (args, copy.copy(args), copy.deepcopy(args)):
        assert masked_adamw(again, {})[1]["max_grad_norm"] == 0.25
    assert type(pickle.loads(pickle.dumps(args)).max_grad_norm) is float  # noqa: S301 # our own bytes
    assert args.to_dict()["max_grad_norm"] == 0.0
    args.max_grad_norm = 0.5
    assert masked_adamw(args, {})[1]["max_grad_norm"] == 0.5
    args.max_grad_norm = 0.0
    assert "max_grad_norm" not in masked_adamw(args, {}, gradients="packed")[1]


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    def run(directory: Path, **resume: Any) -> tuple[dict[str, torch.Tensor], Any]:
        model, start = model_of(), model_of()
        args = arguments(directory, save_strategy="steps", save_steps=2, warmup_steps=2)
        trainer = trainer_of(model, args, masked(model), gradients="packed")
        trainer.train(**resume)
        assert changed(model, copies(start), masked(model))[0] == 0
        return copies(model), trainer.optimizer.state_dict()

    whole, state = run(tmp_path / "run")
    resumed, state_after = run(tmp_path / "run", resume_from_checkpoint=str(tmp_path / "run/checkpoint-2"))
    assert all(torch.equal(p, resumed[name]) for name, p in whole.items())
    assert state["param_groups"] == state_after["param_groups"]
    for number, vectors in state["state"].items():
        for name, vector in vectors.items():
            again = state_after["state"][number][name]
            assert torch.equal(vector, again) if isinstance(vector, torch.Tensor) else vector == again, name


class SwapsForEvaluation(torch.optim.SGD):
    """As schedule-free optimizers do: it trains at one point, and ``eval()`` moves the weights to another one."""

    is_swapped = False

    @torch.no_grad()
    def swap(self, factor: float, *, is_swapped: bool) -> None:
        if self.is_swapped != is_swapped:
            self.is_swapped = is_swapped
            for p in (p for group in self.param_groups for p in group["params"]):
                p.mul_(factor)

    def eval(self) -> None:
        self.swap(0.5, is_swapped=True)

    def train(self) -> None:
        self.swap(2.0, is_swapped=False)


def saved_weights(directory: Path) -> dict[str, dict[str, torch.Tensor]]:
    """The weights of every save that counts, by its folder."""
    return {path.parent.name: load_file(path) for path in sorted(directory.glob("checkpoint-*/model.safetensors"))}


def test_an_optimizer_that_swaps_weights_for_evaluation_is_saved_with_the_mask(tmp_path: Path) -> None:
    model = model_of(torch.float32)
    mask, before = masked(model), copies(model)
    options = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    trainer = Trainer(
        model,
        arguments(tmp_path, **options),
        train_dataset=rows(),
        eval_dataset=rows(),
        optimizer_cls_and_kwargs=(SwapsForEvaluation, {"lr": 1e-2}),
        callbacks=[MaskCallback(mask)],
    )
    trainer.train()
    assert saved_weights(tmp_path).keys() == {"checkpoint-2", "checkpoint-4"}
    for weights in saved_weights(tmp_path).values():
        saved = model_of(torch.float32)
        saved.load_state_dict(weights, strict=False)
        outside, inside = changed(saved, before, mask)
        assert outside == 0 < inside
    optimizer = trainer.optimizer.optimizer
    optimizer.train()  # held no more once the run has ended
    assert changed(model, before, mask)[0] > 0


class Writes(TrainerCallback):  # type: ignore[misc]
    """Makes frozen weights negative at an event of step 2; perhaps only until the save is made."""

    def __init__(self, event: str, *, undoes: bool) -> None:
        setattr(self, event, partial(self.write, torch.Tensor.neg_))
        if undoes:
            self.on_save = partial(self.write, torch.Tensor.abs_)

    @torch.no_grad()
    def write(self, change: Any, args: Any, state: Any, control: Any, *, model: Any, **_: object) -> None:
        if state.global_step == 2:
            change(model.model.norm.weight.abs_())


@pytest.mark.parametrize("strategy", ["steps", "no"])
def test_what_moves_outside_the_mask_is_found_before_it_is_saved(strategy: str, tmp_path: Path) -> None:
    model = model_of()
    args = arguments(tmp_path, save_strategy=strategy, save_steps=3)
    trainer = trainer_of(model, args, masked(model), MaskCallback(), Writes("on_step_begin", undoes=False))
    with pytest.raises(CorruptError, match=r"model\.norm\.weight: "):
        trainer.train()
    assert list(tmp_path.glob("checkpoint-*")) == []


@pytest.mark.parametrize(
    ("event", "undoes", "comes_first"),
    [("on_log", False, True), ("on_evaluate", True, False), ("on_save", False, False), ("on_save", False, True)],
)
def test_what_another_callback_writes_is_in_no_save(
    event: str, undoes: bool, comes_first: bool, tmp_path: Path
) -> None:
    model = model_of()
    options = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    args = arguments(tmp_path, save_total_limit=1, **options)
    own, other, of_another_process = MaskCallback(), Writes(event, undoes=undoes), MaskCallback()
    own_and_other = [other, own] if comes_first else [own, other]
    trainer = trainer_of(model, args, masked(model), *own_and_other, of_another_process)
    with pytest.raises(CorruptError):
        trainer.train()
    with pytest.raises(CorruptError):
        of_another_process.state()
    assert len(list(tmp_path.glob("refused-checkpoint-?/model.safetensors"))) == 1
    # The save that was complete when the weight was written stays, and no other is there.
    saves = saved_weights(tmp_path)
    assert saves.keys() == {"checkpoint-2" if event == "on_save" else "checkpoint-1"}
    assert all((weights["model.norm.weight"] > 0).all() for weights in saves.values())


@pytest.mark.filterwarnings("ignore::maskreg.train.LostUpdateWarning")
def test_an_optimizer_that_knows_no_masks_is_held_to_one(tmp_path: Path) -> None:
    model = model_of()
    mask, before = masked(model), copies(model)
    args = arguments(tmp_path, optim="adamw_torch", save_strategy="steps", save_steps=2)
    Trainer(model, args, train_dataset=rows(), callbacks=[MaskCallback(mask)]).train()
    outside, inside = changed(model, before, mask)
    assert outside == 0 < inside
    resumed = model_of()
    path = str(tmp_path / "checkpoint-2")
    Trainer(resumed, args, train_dataset=rows(), callbacks=[MaskCallback(mask)]).train(resume_from_checkpoint=path)
    assert all(torch.equal(p, resumed.get_parameter(name)) for name, p in copies(model).items())
