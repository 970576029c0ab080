"""The training loop, the same in one process and in several; every step follows from the setup and its number."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import torch

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.digest import Digest, short_key
from maskreg.errors import DataError, UsageError
from maskreg.live.shards import local_of
from maskreg.mask.algebra import Everything
from maskreg.mask.packed import Mask
from maskreg.store.file import FileStore
from maskreg.tensors.info import FLOAT
from maskreg.train.optim import MaskedOptimizer
from maskreg.train.optimizers import MaskedAdamW, MaskedSGD
from maskreg.train.recipes import Batch, Context, get_recipe
from maskreg.train.recipes.records import Record, Records, drawn
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.runs.endings import out_of_memory
from maskreg.train.runs.environment import environment_of
from maskreg.train.runs.folder import RunFolder, RunPaths
from maskreg.train.runs.models import load_model, load_tokenizer, stored_dtype
from maskreg.train.runs.parallel import World, distribute, gradient_sync, micro_batches
from maskreg.train.runs.request import rate
from maskreg.train.runs.result import check_dtypes, moved_share, write_result
from maskreg.train.runs.states import load_state, save_state

SAME_MODEL_LOSS = 0.01
"""Largest loss between two copies of one model; rounding of a bf16 forward pass stays below it."""

_LOWER_LR = "a lower --lr, or --dtype float32; the last checkpoint is kept"


class StepListener(Protocol):
    """Receives the progress of training."""

    def begin(self, done: int, steps: int) -> None:
        """Training begins, or resumes after ``done`` of ``steps`` steps."""

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A step is done, with its line of ``metrics.jsonl``."""


def train(folder: RunFolder, setup: RunSetup, paths: RunPaths, listener: StepListener) -> None:
    """Train to the setup's last step, from the last checkpoint if there is one, and write ``folder.model``.

    In processes that torchrun has started, each takes its share.
    """
    world = World.join(paths.device)
    try:
        with closing(open_checkpoint(paths.source)) as source:
            trainer = Trainer(folder, setup, paths, source, world)
            trainer.train(listener)
            write_result(trainer.plain, source, folder.model, world)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise out_of_memory(error) from error
    finally:
        world.leave()


def mask_to_train(setup: RunSetup, paths: RunPaths, source: Checkpoint) -> Mask:
    """The mask of a setup: its artifact's, or all coordinates of floating-point tensors."""
    if setup.mask:
        return Artifact.open(FileStore(Path(paths.home)), Digest(setup.mask)).mask
    return Everything({name: info.shape for name, info in source.tensors.items() if info.dtype in FLOAT})


class Trainer:
    """A model, its optimizer and its data, at some step of a run.

    Attributes:
        plain: the model, without the wrapper that replicates it.
    """

    def __init__(self, folder: RunFolder, setup: RunSetup, paths: RunPaths, source: Checkpoint, world: World) -> None:
        """Load everything."""
        self._folder, self._setup, self._paths, self._world = folder, setup, paths, world
        self._source = source
        _check_batch(setup, world)
        self._recipe = get_recipe(setup.recipe)
        self._records = Records.of(Path(paths.data))
        self._tokenizer = load_tokenizer(paths.source)
        torch.manual_seed(setup.seed)
        self.plain = load_model(paths.source, torch.float32 if setup.dtype == "float32" else stored_dtype(source))
        mask = mask_to_train(setup, paths, source)
        check_dtypes(self.plain, source, mask)
        self._model = distribute(self.plain, paths.parallel, world)
        self._teacher = self._load_teacher()
        self._optimizer = self._make_optimizer(mask)

    def _load_teacher(self) -> torch.nn.Module | None:
        if not self._paths.teacher:
            return None
        with closing(open_checkpoint(self._paths.teacher)) as checkpoint:
            dtype = torch.float32 if self._setup.dtype == "float32" else stored_dtype(checkpoint)
        teacher = load_model(self._paths.teacher, dtype).eval().requires_grad_(False)
        if self._paths.parallel == "ddp":
            return teacher.to(self._world.device)
        return distribute(teacher, "fsdp", self._world)

    def _make_optimizer(self, mask: Mask) -> MaskedOptimizer:
        setup = self._setup
        # An infinite limit takes the norm for the metrics without clipping; in the backward pass there is no norm.
        norm = None if setup.gradients == "in-backward" else setup.clip or math.inf
        options: dict[str, Any] = {"mask": mask, "max_grad_norm": norm, "gradients": setup.gradients}
        options["nonfinite"] = "propagate"  # such a norm ends the run, and nothing of the step is saved
        named = self._model.named_parameters()
        optimizer: MaskedOptimizer
        if setup.optimizer == "sgd":
            optimizer = MaskedSGD(named, setup.lr, setup.momentum, setup.weight_decay, **options)
        else:
            optimizer = MaskedAdamW(named, setup.lr, setup.betas, setup.eps, setup.weight_decay, **options)
        optimizer.bind(self.plain)
        return optimizer

    def train(self, listener: StepListener) -> None:
        """Take all remaining steps."""
        setup = self._setup
        done = self._resume()
        listener.begin(done, setup.steps)
        for step in range(done, setup.steps):
            metrics = self._step(step)
            saving = (step + 1) % self._paths.save_every == 0 or step + 1 == setup.steps
            if saving:
                self._check_weights(step)
                metrics["moved"] = moved_share(self.plain, self._source, self._world)
            if self._world.is_first:
                self._folder.append_metrics(metrics)
            listener.step(metrics)
            if saving:
                self._folder.save_checkpoint(step + 1, self._save, self._world)

    def _step(self, step: int) -> dict[str, Any]:
        setup, world = self._setup, self._world
        began = time.monotonic()
        lr = rate(setup.schedule, setup.lr, step=step, steps=setup.steps, warmup=setup.warmup)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        batches = self._batches(step)
        weight, tokens = world.sum(
            sum(batch.weight for _, batch in batches), float(sum(batch.tokens for _, batch in batches))
        )
        loss = self._backward(batches, weight)
        self._check_loss(step, loss)
        self._optimizer.step()
        norm = None if self._optimizer.grad_norm is None else float(self._optimizer.grad_norm)
        if norm is not None:
            self._check_norm(step, norm)
        self._optimizer.zero_grad()
        return {
            "step": step + 1,
            "loss": loss,
            "lr": lr,
            "grad_norm": norm,
            "tokens": int(tokens),
            "seconds": round(time.monotonic() - began, 4),
        }

    def _batches(self, step: int) -> list[tuple[Context, Batch]]:
        """This process's micro-batches of a step, prepared before its first gradient."""
        setup = self._setup
        chosen = drawn(len(self._records), setup.seed, step=step, batch=setup.batch)
        batches = []
        for rows in micro_batches(range(setup.batch), self._world, setup.micro_batch):
            context = self._context(step, rows)
            records: list[Record] = [self._records[chosen[row]] for row in rows]
            batches.append((context, self._recipe.prepare(self.plain, records, context)))
        return batches

    def _backward(self, batches: list[tuple[Context, Batch]], weight: float) -> float:
        """Compute the gradients of a step; returns its loss.

        The loss is a mean over the terms of all micro-batches of all processes, of which there are ``weight``. FSDP
        and DDP average gradients over processes where a sum is needed; dividing by ``weight / size`` instead of
        ``weight`` makes up for that.
        """
        loss, size = 0.0, self._world.size
        for number, (context, batch) in enumerate(batches):
            torch.manual_seed(context.seed)
            with gradient_sync(self._model, enabled=number + 1 == len(batches)):
                share = self._recipe.loss(self._model, batch, context, weight / size)
                share.backward()  # type: ignore[no-untyped-call]
            loss += float(share.detach()) / size
        return self._world.sum(loss)[0]

    def _context(self, step: int, rows: list[int]) -> Context:
        seed = short_key(f"{self._setup.seed} {step} {rows[0]}") >> 1
        device, any_of = self._world.device, self._world.any_of
        return Context(self._setup, self._tokenizer, device, self._teacher, step, rows, seed, any_of)

    def _check_weights(self, step: int) -> None:
        broken = any(not local_of(p.detach()).isfinite().all() for p in self.plain.parameters())
        if self._world.any_of(broken):
            raise DataError(f"weights are not finite after step {step + 1}; they were not saved", hint=_LOWER_LR)

    def _check_norm(self, step: int, norm: float) -> None:
        if not math.isfinite(norm):
            raise DataError(f"the gradient of step {step + 1} has norm {norm}; the step was not saved", hint=_LOWER_LR)

    def _check_loss(self, step: int, loss: float) -> None:
        if not math.isfinite(loss):
            raise DataError(f"the loss of step {step + 1} is {loss}; the step was not taken", hint=_LOWER_LR)
        same = self._setup.teacher == self._setup.source and self._setup.recipe == "opd"
        if step == 0 and same and self._setup.loss == "full" and abs(loss) > SAME_MODEL_LOSS:
            raise DataError(
                f"teacher and source are the same checkpoint, but the first loss is {loss:.4f} instead of 0",
                hint="their configurations differ; give both the same config.json",
            )

    # -- checkpoints

    def _save(self, folder: Path) -> None:
        save_state(folder, self.plain, self._optimizer, self._world)

    def _resume(self) -> int:
        latest = self._folder.latest_checkpoint()
        if self._world.is_first:
            self._folder.truncate_metrics(latest[0] if latest else 0)
            self._folder.record_environment(latest[0] if latest else 0, environment_of(self._world, self._paths))
        self._world.barrier()
        if latest is None:
            return 0
        done, folder = latest
        load_state(folder, self.plain, self._optimizer)
        return done


def _check_batch(setup: RunSetup, world: World) -> None:
    if setup.batch % world.size:
        raise UsageError(
            f"{world.size} processes cannot share batches of {setup.batch} records equally",
            hint=f"--batch-size {-(-setup.batch // world.size) * world.size}",
        )
