"""Training: the same few lines on one process and on many, whose every step follows from the setup and its number."""

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
from maskreg.mask.everything import Everything
from maskreg.mask.packed import Mask
from maskreg.store.file import FileStore
from maskreg.tensors.dtypes import FLOAT
from maskreg.train.optim import MaskedOptimizer
from maskreg.train.optimizers import MaskedAdamW, MaskedSGD
from maskreg.train.recipes import Batch, Context, get_recipe
from maskreg.train.recipes.records import Record, Records, drawn
from maskreg.train.recipes.setup import Places, Setup
from maskreg.train.runs.folder import Folder
from maskreg.train.runs.models import load_model, load_tokenizer, stored_dtype
from maskreg.train.runs.parallel import World, parts, spread, without_exchange
from maskreg.train.runs.result import check_dtypes, moved_share, write_result
from maskreg.train.runs.schedule import rate
from maskreg.train.runs.states import load_state, save_state

SAME = 0.01
"""The loss below which two models are taken for one: rounding of a bf16 forward pass stays below it."""


_CALMER = "a lower --lr, or --dtype float32; the last checkpoint is kept"


class Listener(Protocol):
    """Hears of every step."""

    def begin(self, done: int, steps: int) -> None:
        """Training begins, or goes on after ``done`` of ``steps`` steps."""

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A step is done, with its line of ``metrics.jsonl``."""


def train(folder: Folder, setup: Setup, places: Places, listener: Listener) -> None:
    """Train until the setup's last step, from the last checkpoint on if there is one, and write the result.

    In processes that torchrun has started, each takes its share. The result appears in ``folder.model``.

    Raises:
        MaskregError: something that was named cannot be loaded or trained on, or the loss is no number.
    """
    world = World.join(places.device)
    try:
        with closing(open_checkpoint(places.source)) as source:
            engine = Engine(folder, setup, places, source, world)
            engine.run(listener)
            write_result(engine.plain, source, folder.model, world)
    finally:
        world.leave()


def mask_to_train(setup: Setup, places: Places, source: Checkpoint) -> Mask:
    """The mask of a setup: its artifact's, or all coordinates of tensors of floating-point numbers."""
    if setup.mask:
        return Artifact.open(FileStore(Path(places.home)), Digest(setup.mask)).mask
    return Everything({name: info.shape for name, info in source.tensors.items() if info.dtype in FLOAT})


class Engine:
    """A model, its optimizer, its data, and where they are in the run.

    Attributes:
        plain: the model, without what copies it to other processes.
    """

    def __init__(self, folder: Folder, setup: Setup, places: Places, source: Checkpoint, world: World) -> None:
        """Load everything."""
        self._folder, self._setup, self._places, self._world = folder, setup, places, world
        self._source = source
        _check_shares(setup, world)
        self._recipe = get_recipe(setup.recipe)
        self._records = Records.of(Path(places.data))
        self._tokenizer = load_tokenizer(places.source)
        torch.manual_seed(setup.seed)
        self.plain = load_model(places.source, torch.float32 if setup.dtype == "float32" else stored_dtype(source))
        mask = mask_to_train(setup, places, source)
        check_dtypes(self.plain, source, mask)
        self._model = spread(self.plain, places.parallel, world)
        self._teacher = self._load_teacher()
        self._optimizer = self._make_optimizer(mask)

    def _load_teacher(self) -> torch.nn.Module | None:
        if not self._places.teacher:
            return None
        with closing(open_checkpoint(self._places.teacher)) as checkpoint:
            dtype = torch.float32 if self._setup.dtype == "float32" else stored_dtype(checkpoint)
        teacher = load_model(self._places.teacher, dtype).eval().requires_grad_(False)
        if self._places.parallel == "ddp":
            return teacher.to(self._world.device)
        return spread(teacher, "fsdp", self._world)

    def _make_optimizer(self, mask: Mask) -> MaskedOptimizer:
        setup = self._setup
        # The norm is wanted in any case; stepping within the backward pass never knows it.
        norm = None if setup.gradients == "in-backward" else setup.clip or math.inf
        options: dict[str, Any] = {"mask": mask, "max_grad_norm": norm, "gradients": setup.gradients}
        named = self._model.named_parameters()
        optimizer: MaskedOptimizer
        if setup.optimizer == "sgd":
            optimizer = MaskedSGD(named, setup.lr, setup.momentum, setup.weight_decay, **options)
        else:
            optimizer = MaskedAdamW(named, setup.lr, setup.betas, setup.eps, setup.weight_decay, **options)
        optimizer.bind(self.plain)
        return optimizer

    def run(self, listener: Listener) -> None:
        """Take every step that is left."""
        setup, first = self._setup, self._world.first
        done = self._resume()
        listener.begin(done, setup.steps)
        for step in range(done, setup.steps):
            metrics = self._step(step)
            saving = (step + 1) % self._places.save_every == 0 or step + 1 == setup.steps
            if saving:
                self._check_weights(step)
                metrics["moved"] = moved_share(self.plain, self._source, self._world)
            if first:
                self._folder.step(metrics)
            listener.step(metrics)
            if saving:
                self._folder.save(step + 1, self._save, first=first, meet=self._world.meet)

    def _step(self, step: int) -> dict[str, Any]:
        setup, world = self._setup, self._world
        began = time.monotonic()
        lr = rate(setup.schedule, setup.lr, step=step, steps=setup.steps, warmup=setup.warmup)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        work = self._batches(step)
        weight, tokens = world.sum(
            sum(batch.weight for _, batch in work), float(sum(batch.tokens for _, batch in work))
        )
        loss = self._backward(work, weight)
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
        """This process's share of a step, made before any gradient of it is there."""
        setup = self._setup
        chosen = drawn(len(self._records), setup.seed, step=step, batch=setup.batch)
        found = []
        for rows in parts(range(setup.batch), self._world, setup.micro_batch):
            context = self._context(step, rows)
            records: list[Record] = [self._records[chosen[row]] for row in rows]
            found.append((context, self._recipe.prepare(self.plain, records, context)))
        return found

    def _backward(self, work: list[tuple[Context, Batch]], weight: float) -> float:
        """The loss of a step of this weight in all processes, whose gradients it leaves behind."""
        loss, size = 0.0, self._world.size
        for number, (context, batch) in enumerate(work):
            torch.manual_seed(context.seed)
            with without_exchange(self._model, number + 1 < len(work)):
                # Gradients of several processes are averaged, and those of a step are to be summed.
                share = self._recipe.loss(self._model, batch, context, weight / size)
                share.backward()  # type: ignore[no-untyped-call]
            loss += float(share.detach()) / size
        return self._world.sum(loss)[0]

    def _context(self, step: int, rows: list[int]) -> Context:
        seed = short_key(f"{self._setup.seed} {step} {rows[0]}") >> 1
        device, any_of = self._world.device, self._world.any_of
        return Context(self._setup, self._tokenizer, device, self._teacher, step, rows, seed, any_of)

    def _check_weights(self, step: int) -> None:
        here = any(not local_of(p.detach()).isfinite().all() for p in self.plain.parameters())
        if self._world.any_of(here):
            raise DataError(f"weights are no finite numbers after step {step + 1}; they were not saved", hint=_CALMER)

    def _check_norm(self, step: int, norm: float) -> None:
        if not math.isfinite(norm):
            raise DataError(f"the gradient of step {step + 1} has norm {norm}; the step was not saved", hint=_CALMER)

    def _check_loss(self, step: int, loss: float) -> None:
        if not math.isfinite(loss):
            raise DataError(
                f"the loss of step {step + 1} is {loss}; nothing of it was taken into the weights",
                hint=_CALMER,
            )
        same = self._setup.teacher == self._setup.source and self._setup.recipe == "opd"
        if step == 0 and same and self._setup.loss == "full" and abs(loss) > SAME:
            raise DataError(
                f"teacher and source are the same checkpoint, and yet the first loss is {loss:.4f}, not near 0",
                hint="their configurations differ; give both the same config.json",
            )

    # -- checkpoints

    def _save(self, place: Path) -> None:
        save_state(place, self.plain, self._optimizer, self._world)

    def _resume(self) -> int:
        latest = self._folder.latest()
        if self._world.first:
            self._folder.go_back(latest[0] if latest else 0)
        self._world.meet()
        if latest is None:
            return 0
        done, place = latest
        load_state(place, self.plain, self._optimizer)
        return done


def _check_shares(setup: Setup, world: World) -> None:
    if setup.batch % world.size:
        raise UsageError(
            f"{world.size} processes cannot share batches of {setup.batch} records in equal parts",
            hint=f"--batch-size {-(-setup.batch // world.size) * world.size}",
        )
