"""One run of TRL on a mask, in one process, or in each of those that torchrun or Accelerate has started."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import DataError, TryAgainError, UsageError
from maskreg.flow.publish.saving import save_like, state_of
from maskreg.live.alone import Alone
from maskreg.live.memory import DTYPES
from maskreg.live.processes import Processes
from maskreg.mask.packed import Mask
from maskreg.tensors.info import FLOAT
from maskreg.train.hooks.trainer import MaskCallback, masked, masked_adamw
from maskreg.train.retrain.folder import RunFolder
from maskreg.train.retrain.prepare import NOT_LOADED, PreparedRun, load_function
from maskreg.train.retrain.setup import RECIPES, arguments, calling, trl
from maskreg.version import __version__

_LIBRARIES = ("torch", "transformers", "trl", "numpy")


StepListener = Callable[[Mapping[str, Any]], None]
"""Called with each line of ``metrics.jsonl``."""


def train(
    folder: RunFolder,
    run: PreparedRun,
    source: Checkpoint,
    listener: StepListener | None,
    latest: tuple[int, Path] | None,
    everyone: Processes | Alone,
) -> None:
    """Train to the setup's last step, from the latest save if there is one, and write ``folder.model``."""
    setup = run.setup
    try:
        step, save = latest or (0, None)
        if step < setup.steps:
            trainer = _trainer(run, source, folder)
            trainer.add_callback(_Progress(folder, listener, everyone))
            function = setup.function and f", or {setup.function}"
            with calling(f"trl.{type(trainer).__name__}", f"the data, keys of TRL{function}"):
                trainer.train(resume_from_checkpoint=str(save) if save else None)
            if (taken := trainer.state.global_step) < setup.steps:
                raise UsageError(f"TRL took {taken} of {setup.steps} steps", hint="change keys of TRL")
            model = trainer.model
        else:  # Trainer would take a step more
            model = load_model(str(save), source, setup.dtype)
        save_like(model, source, folder.model)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise TryAgainError(
            f"memory ran out: {str(error).strip().partition(chr(10))[0] or type(error).__name__}",
            hint="free memory and run the same command, which resumes; or begin in another folder with a larger"
            " gradient_accumulation_steps",
        ) from error


def _trainer(run: PreparedRun, source: Checkpoint, folder: RunFolder) -> Any:
    """TRL's trainer of the recipe, with the masked optimizer and the callback that checks each save."""
    setup, recipe = run.setup, RECIPES[run.setup.recipe]
    args = arguments(setup, folder.checkpoints, save_every=run.save_every)
    model = load_model(str(run.source), source, setup.dtype)
    check_dtypes(model, source, run.mask)
    # DistributedDataParallel averages gradients after the backward pass, so they have to stay dense.
    gradients = setup.gradients or ("packed" if args.world_size == 1 or args.fsdp else "dense")
    own: dict[str, Any] = {}
    if run.teacher:
        with closing(open_checkpoint(run.teacher)) as teacher:
            own["teacher_model"] = load_model(run.teacher, teacher, setup.dtype).eval().requires_grad_(False)
    if recipe.takes == "reward":
        own["reward_funcs"] = load_function(setup.function)
    with calling(f"trl.{recipe.method}Trainer", "the data, or keys of TRL", DataError):
        make = getattr(trl(), f"{recipe.method}Trainer")
        trainer = make(model=model, args=args, train_dataset=run.records, processing_class=run.tokenizer, **own)
    if recipe.takes == "loss" and setup.function:
        trainer.compute_loss_func = load_function(setup.function)
    if setup.config["optim"] == "sgd":
        trainer.optimizer_cls_and_kwargs = masked(args, torch.optim.SGD, run.mask, gradients=gradients)
    else:
        trainer.optimizer_cls_and_kwargs = masked_adamw(args, run.mask, gradients=gradients)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(MaskCallback())
    return trainer


def load_model(path: str, checkpoint: Checkpoint, dtype: str) -> torch.nn.Module:
    """A causal language model on the CPU, in fp32 or in the dtype of most of its parameters."""
    counts: Counter[str] = Counter()
    for info in checkpoint.tensors.values():
        if info.dtype in FLOAT:
            counts[info.dtype] += info.numel
    if not counts:
        raise DataError(f"{path}: no tensors of 16-bit or wider floating-point numbers to train")
    wanted = "F32" if dtype == "float32" else counts.most_common(1)[0][0]
    with calling(path, NOT_LOADED, DataError):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[wanted])
    return model.train()  # type: ignore[no-any-return]


def check_dtypes(model: torch.nn.Module, source: Checkpoint, mask: Mask) -> None:
    """Reject training in a narrower dtype than weights are stored in."""
    for name, info in state_of(model, source).tensors.items():
        stored = source.tensors[name].dtype
        if info.dtype != stored and (info.dtype != "F32" or stored == "F64") and (name not in mask or mask[name].nnz):
            text = f"{name} is stored in {stored} and would be trained in {info.dtype}"
            if stored == "F64":
                raise DataError(text, hint="store all of it in F64, and train it in the stored dtype")
            raise DataError(text, options={"dtype": "float32"})


class _Progress(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics, and marks a save as whole once every process has written its part of it."""

    def __init__(self, folder: RunFolder, listener: StepListener | None, everyone: Processes | Alone) -> None:
        self._folder, self._listener, self._everyone = folder, listener, everyone
        self._then = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        first, step, environment = state.is_world_process_zero, state.global_step, _environment(args)
        self._everyone.together(lambda: self._folder.resume(step, environment) if first else None)
        self._then = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, Any], **_: object) -> None:
        if "loss" not in logs:
            return
        before, self._then = self._then, (now := time.monotonic())
        line = {"step": state.global_step, "steps": state.max_steps, "seconds": round(now - before, 4), **logs}
        if state.is_world_process_zero:
            self._folder.append_metrics(line)
        if self._listener:
            self._listener(line)

    def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self._everyone.gathered(None)
        first = state.is_world_process_zero
        self._everyone.together(lambda: self._folder.complete_save(state.global_step) if first else None)


def _environment(args: Any) -> dict[str, Any]:
    """What the bits of the steps that these processes take depend on, beside the setup.

    Sums over processes, and the kernels of a device or of a library's version, round in another order.
    """
    versions = {"maskreg": __version__, **{name: version(name) for name in _LIBRARIES}}
    device: dict[str, Any]
    if args.device.type == "cuda":
        device = {"device": torch.cuda.get_device_name(args.device)}
    else:
        device = {"device": f"cpu {torch.backends.cpu.get_cpu_capability()}", "threads": torch.get_num_threads()}
    return {"processes": args.world_size, **device, "versions": versions}
