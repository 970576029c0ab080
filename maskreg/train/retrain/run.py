"""One run of TRL on a mask, in this process or, as ``torchrun -m maskreg.train.retrain.run FOLDER``, in several."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import ConfigError, DataError, MaskregError, TryAgainError, UsageError, WorkerError
from maskreg.live.memory import CODES, DTYPES
from maskreg.live.naming import find
from maskreg.live.state import ModelState
from maskreg.mask.packed import Mask
from maskreg.tensors.info import FLOAT
from maskreg.train.hooks.trainer import MaskCallback, masked_adamw, masked_sgd
from maskreg.train.retrain.folder import RunFolder, RunPaths
from maskreg.train.retrain.prepare import (
    check_rewards,
    load_function,
    load_tokenizer,
    loading,
    mask_to_train,
    read_records,
)
from maskreg.train.retrain.setup import RECIPES, RunSetup, arguments, calling_trl, trl
from maskreg.version import __version__

_LIBRARIES = ("torch", "transformers", "trl", "numpy")
_RENDEZVOUS = ("--standalone", "--rdzv", "--master", "--nnodes", "--node")
"""Prefixes of options that say where processes meet."""
_POLL_SECONDS = 0.2
_ENDING_SECONDS = 60
"""More than the 30 seconds that torchrun itself gives its processes to end."""
_COPY_NUMEL = 1 << 22


StepListener = Callable[[Mapping[str, Any]], None]
"""Called with each line of ``metrics.jsonl``."""


def launch(folder: RunFolder, options: Sequence[str], listener: StepListener | None, *, lock: int) -> None:
    """Train the run of a folder to its end: in this process, or with options for torchrun in several."""
    reported, _ = folder.latest_save() or (0, None)
    if not options or reported >= folder.setup().steps:
        train(folder, listener)
        return
    spelled = [option.replace("_", "-") for option in options]
    standalone = [] if any(option.startswith(_RENDEZVOUS) for option in spelled) else ["--standalone"]
    command = [sys.executable, "-m", "torch.distributed.run", *standalone, *options, "-m", __name__, str(folder.path)]
    folder.forget_after(reported)  # steps that are taken again are also reported again
    with folder.log.open("wb") as log:
        # In its own session, so that Ctrl-C reaches this process alone, which then ends torchrun in order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[lock], start_new_session=True
        )
        try:
            is_running = True
            while is_running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                is_running = process.poll() is None  # before the metrics are read, so that the last lines are too
                for line in folder.metrics():
                    if listener and line["step"] > reported:
                        listener(line)
                        reported = line["step"]
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_SECONDS)
                process.kill()
                process.wait()
    failure = folder.take_failure()  # with --max-restarts, a run may succeed after one
    if process.returncode:
        raise failure or _ended(process.returncode, folder.log)


def _ended(status: int, log: Path) -> MaskregError:
    text = log.read_text(errors="replace")
    if signal := re.search(r"Signal \d+ \((SIG\w+)\) received by PID \d+", text):
        return TryAgainError(
            f"a process was ended by {signal[1]}",
            hint=f"free memory if it ran out, and run the same command, which resumes; less {log}",
        )
    lines = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
    # Torchrun ends with a table of its processes, which does not say why.
    wrong = [line for line in lines if re.match(r"(?:\[rank\d+\]: *)?[\w.]*(?:Error|Exception|error): \S", line)]
    kind = WorkerError if "ChildFailedError" in text else ConfigError
    return kind(f"torchrun ended with {status}: {(wrong or lines or ['it printed nothing'])[-1]}", hint=f"less {log}")


def train(folder: RunFolder, listener: StepListener | None, *, rank: int = 0) -> None:
    """Train to the setup's last step, from the last whole save if there is one, and write ``folder.model``."""
    setup, paths = folder.setup(), folder.paths()
    try:
        with closing(open_checkpoint(paths.source)) as source:
            step, save = folder.latest_save() or (0, None)
            if step < setup.steps:
                trainer = _trainer(setup, paths, source, folder)
                trainer.add_callback(_Progress(folder, listener))
                name, function = type(trainer).__name__, setup.function and f", or {setup.function}"
                with calling_trl(name, f"the data, keys of TRL{function}"):
                    trainer.train(resume_from_checkpoint=str(save) if save else None)
                if (taken := trainer.state.global_step) < setup.steps:
                    raise UsageError(f"trl.{name} took {taken} of {setup.steps} steps", hint="change keys of TRL")
                model = trainer.model
            else:  # Trainer would take a step more
                model = load_model(str(save), source, setup.dtype)
            write_result(model, source, folder.model, is_first=rank == 0)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise TryAgainError(
            f"memory ran out: {str(error).strip().partition(chr(10))[0] or type(error).__name__}",
            hint="free memory and run the same command, which resumes; or begin in another folder with a larger"
            " gradient_accumulation_steps",
        ) from error


def _trainer(setup: RunSetup, paths: RunPaths, source: Checkpoint, folder: RunFolder) -> Any:
    """TRL's trainer of the recipe, with the masked optimizer and the callback that checks each save."""
    recipe = RECIPES[setup.recipe]
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    args = arguments(setup, folder.checkpoints, save_every=paths.save_every, processes=processes)
    tokenizer = load_tokenizer(paths.source)
    records = read_records(Path(paths.data), recipe, tokenizer)
    mask = mask_to_train(setup, paths, source)
    model = load_model(paths.source, source, setup.dtype)
    check_dtypes(model, source, mask)
    # DistributedDataParallel averages gradients after the backward pass, so they have to stay dense.
    gradients = setup.gradients or ("packed" if processes == 1 or args.fsdp else "dense")
    own: dict[str, Any] = {}
    if paths.teacher:
        with closing(open_checkpoint(paths.teacher)) as teacher:
            own["teacher_model"] = load_model(paths.teacher, teacher, setup.dtype).eval().requires_grad_(False)
    if "reward" in recipe.takes:
        own["reward_funcs"] = load_function(setup.function, check=check_rewards)
    with calling_trl(f"{recipe.method}Trainer", "the data, or keys of TRL", DataError):
        make = getattr(trl(), f"{recipe.method}Trainer")
        trainer = make(model=model, args=args, train_dataset=records, processing_class=tokenizer, **own)
    if "loss" in recipe.takes and setup.function:
        trainer.compute_loss_func = load_function(setup.function)
    optimizer = masked_sgd if setup.optimizer == "sgd" else masked_adamw
    trainer.optimizer_cls_and_kwargs = optimizer(args, mask, gradients=gradients)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(MaskCallback())
    return trainer


def load_model(path: str, checkpoint: Checkpoint, dtype: str) -> torch.nn.Module:
    """A causal language model on the CPU, in fp32 or in the dtype of most of its parameters."""
    counts: dict[str, int] = {}
    for info in checkpoint.tensors.values():
        if info.dtype in FLOAT:
            counts[info.dtype] = counts.get(info.dtype, 0) + info.numel
    if not counts:
        raise DataError(f"{path}: no tensors of 16-bit or wider floating-point numbers to train")
    stored = DTYPES[max(counts, key=lambda name: counts[name])]
    with loading(path, "config.json") as library:
        wanted = torch.float32 if dtype == "float32" else stored
        return library.AutoModelForCausalLM.from_pretrained(path, dtype=wanted).train()  # type: ignore[no-any-return]


def state_of(model: torch.nn.Module, source: Checkpoint) -> ModelState:
    """The parameters of a model as the source's tensors, whole ones of a sharded model; a collective call."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    floats = [name for name, info in source.tensors.items() if info.dtype in FLOAT]
    joins = find(floats, parameters, model).joins
    held = {name: source.tensors[name] for join in joins for group in join.sources for name in group}
    whole = {name: getattr(p.detach(), "full_tensor", lambda p=p: p)() for name, p in parameters.items()}
    return ModelState(model, held, tensors=whole, allow_surplus=True)


def check_dtypes(model: torch.nn.Module, source: Checkpoint, mask: Mask) -> None:
    """Reject training in a narrower dtype than weights are stored in."""
    for name, info in state_of(model, source).tensors.items():
        stored = source.tensors[name].dtype
        if info.dtype != stored and (info.dtype != "F32" or stored == "F64") and (name not in mask or mask[name].nnz):
            text = f"{name} is stored in {stored} and would be trained in {info.dtype}"
            if stored == "F64":
                raise DataError(text, hint="store all of it in F64, and train it in the stored dtype")
            raise DataError(text, options={"dtype": "float32"})


def write_result(model: torch.nn.Module, source: Checkpoint, out: Path, *, is_first: bool) -> None:
    """Write the model as a checkpoint with the source's files, tensor order and dtypes, whole or not at all.

    What is no parameter of the model is copied. A collective call, of which the first process writes.
    """
    state = state_of(model, source)
    if not is_first:
        return
    with write_checkpoint(out, plan_like(source)) as writer:
        for info in source.tensors.values():
            for start in range(0, info.numel, _COPY_NUMEL):
                stop = min(start + _COPY_NUMEL, info.numel)
                if info.name not in state.tensors:
                    writer.write(source.read(info.name, start, stop))
                    continue
                bits, held = state.read(info.name, start, stop), state.tensors[info.name].dtype
                if held != info.dtype:
                    cast = torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(DTYPES[held]).to(DTYPES[info.dtype])
                    bits = cast.view(CODES[info.item_bytes]).numpy().view(f"u{info.item_bytes}")
                writer.write(bits)


class _Progress(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics, and marks a save as whole once every process has written its part of it."""

    def __init__(self, folder: RunFolder, listener: StepListener | None) -> None:
        self._folder, self._listener, self._then = folder, listener, time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if state.is_world_process_zero:
            self._folder.resume(state.global_step, _environment(args))
        self._then = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, Any], **_: object) -> None:
        if "loss" not in logs:
            return
        now, before = time.monotonic(), self._then
        self._then = now
        line = {
            "step": state.global_step,
            "steps": state.max_steps,
            "loss": float(logs["loss"]),
            "lr": float(logs["learning_rate"]),
        }
        others = {name: value for name, value in logs.items() if name not in ("loss", "learning_rate", "epoch")}
        line |= {"grad_norm": None, **others, "seconds": round(now - before, 4)}
        if state.is_world_process_zero:
            self._folder.append_metrics(line)
        if self._listener:
            self._listener(line)

    def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if state.is_world_process_zero:
            self._folder.complete_save(state.global_step)


def _environment(args: Any) -> dict[str, Any]:
    """What the bits of the steps that these processes take depend on, beside the setup.

    Sums over processes, and the kernels of a device or of a library's version, round in another order.
    """
    on_gpu = args.device.type == "cuda"
    device = torch.cuda.get_device_name(args.device) if on_gpu else f"cpu {torch.backends.cpu.get_cpu_capability()}"
    return {
        "processes": args.world_size,
        "device": device,
        **({} if on_gpu else {"threads": torch.get_num_threads()}),
        "versions": {"maskreg": __version__, **{name: version(name) for name in _LIBRARIES}},
    }


def main(path: str) -> int:
    """Train this process's share of a run; an exception that is none of maskreg's goes to the log."""
    folder = RunFolder(Path(path))
    try:
        train(folder, None, rank=int(os.environ["RANK"]))
    except MaskregError as error:
        folder.record_failure(error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread of Gloo that lets go of tensors while the interpreter shuts down can abort the process.
    os._exit(status)
