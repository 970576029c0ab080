"""``maskreg retrain``: train the coordinates of a mask, from its source."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes, percent

from .command import Command, workspace
from .output import Output
from .values import FORCE, NAME, NATURAL, NUMBER, OUT, POSITIVE, REF, SEED, IntegerType, NumberType

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from maskreg.workspace.retrain import RetrainResult

_TORCHRUN = "maskreg.torchrun"


class _WithTorchrun(Command):
    # What follows -- is for torchrun, also if REF is left out, where click would take it for REF.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta[_TORCHRUN] = args[:cut], args[cut + 1 :]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- TORCHRUN OPTIONS]"]


@click.command(
    cls=_WithTorchrun,
    example="""
    maskreg retrain qwen3-8b-opd --recipe opd --teacher ./Qwen3-32B --data prompts.jsonl -o run
    maskreg retrain qwen3-8b-opd --source ./Qwen3 --recipe sft --data pairs.jsonl -o run -- --nproc-per-node 8
    maskreg retrain qwen3-8b-opd --recipe sft --data pairs.jsonl -o run --control subset --control-density .1
    maskreg retrain --control full --source ./Qwen3-8B --recipe losses:mine --data pairs.jsonl -o full
    """,
)
@click.argument("ref", type=REF, required=False)
@click.option("--source", metavar="CKPT", help="Checkpoint to train, the mask's source: directory or hub id.")
@click.option("--recipe", required=True, metavar="RECIPE", help="opd, sft, or your own as module:function.")
@click.option("--teacher", default="", metavar="CKPT", help="Teacher of opd: directory or hub id.")
@click.option("--data", type=click.Path(), required=True, metavar="JSONL", help="File with one record per line.")
@click.option(
    "-o", "--out", type=OUT, required=True, help="Folder of the run, made if missing; the model is in OUT/model."
)
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="Store what changed as an artifact of this name.")
@FORCE
@click.option("--control", default="", metavar="KIND", help="Train a control instead of the mask; see above.")
@click.option("--control-seed", type=SEED, metavar="N", help="Seed for random controls [0].")
@click.option("--control-density", type=NUMBER, metavar="SHARE", help="Density of control subset, of all coordinates.")
@click.option("--loss", default="", metavar="LOSS", help="Loss of opd: full (all tokens) or sampled [full].")
@click.option("--steps", type=POSITIVE, default=100, show_default=True, help="Optimizer steps.")
@click.option("--batch-size", "batch", type=POSITIVE, default=8, show_default=True, help="Records per step.")
@click.option("--micro-batch-size", "micro_batch", type=POSITIVE, help="Records per forward pass [batch size].")
@click.option("--optimizer", type=click.Choice(["adamw", "sgd"]), default="adamw", show_default=True, help="Optimizer.")
@click.option("--lr", type=NumberType(min=0), help="Learning rate [1e-6; sgd: 1e-2].")
@click.option("--betas", type=(float, float), default=(0.9, 0.999), show_default=True, help="Betas of adamw.")
@click.option(
    "--weight-decay",
    type=NumberType(min=0),
    default=0.0,
    show_default=True,
    help="Weight decay, decoupled for adamw.",
)
@click.option("--momentum", type=NumberType(0, 1), default=0.0, show_default=True, help="Momentum of sgd.")
@click.option("--clip", type=NumberType(min=0), help="Largest norm of the masked gradient; 0 disables [1].")
@click.option(
    "--schedule",
    type=click.Choice(["constant", "linear", "cosine"]),
    default="constant",
    show_default=True,
    help="Learning rate after warmup.",
)
@click.option("--warmup", type=NATURAL, default=0, show_default=True, help="Steps of linear warmup.")
@click.option("--max-length", type=IntegerType(2), help="Tokens of prompt and completion [1024, or the model's limit].")
@click.option("--max-new-tokens", type=POSITIVE, default=256, show_default=True, help="Tokens that opd samples.")
@click.option(
    "--temperature", type=NumberType(min=0), default=1.0, show_default=True, help="Temperature of opd's sampling."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of data order and sampling.")
@click.option(
    "--gradients",
    type=click.Choice(["packed", "dense", "in-backward"]),
    help="Gradient storage: packed to the mask, dense (ddp), or stepped in the backward pass.",
)
@click.option(
    "--dtype",
    type=click.Choice(["stored", "float32"]),
    default="stored",
    show_default=True,
    help="Dtype of weights and forward pass; updates are always fp32.",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Where to train."
)
@click.option(
    "--parallel",
    type=click.Choice(["fsdp", "ddp"]),
    default="fsdp",
    show_default=True,
    help="How processes of torchrun share the model.",
)
@click.option("--save-every", type=POSITIVE, default=50, show_default=True, help="Steps per checkpoint.")
@click.option("--download", is_flag=True, help="Fetch hub checkpoints that are not in the cache.")
@click.option("--dry-run", is_flag=True, help="Check everything, and print what the run would need.")
@click.pass_context
def command(ctx: click.Context, /, ref: Ref | None, out: Path, dry_run: bool, **options: Any) -> None:
    """Train only the coordinates of a mask.

    Training starts from the mask's source. Coordinates outside the mask keep their bits and have no optimizer state.
    The same command resumes an interrupted run. At the end the model is compared with its source, bit by bit.

    \b
    opd  {"prompt": ...} or {"messages": [...]};
         the student samples, the teacher scores
    sft  {"prompt": ..., "completion": ...},
         {"messages": [...]} or {"text": ...}

    Controls are full (all coordinates) and the kinds of `maskreg baseline`, at the mask's density:
    random-per-tensor, exponent-matched, low-magnitude, rounding-null, subset, complement and others.

    Options after -- go to torchrun, as in -- --nproc-per-node 2; without any, one process trains.
    """  # noqa: D301
    output = ctx.ensure_object(Output)
    from maskreg.workspace.retrain import plan, retrain

    space = workspace(output)
    naming = {option: options.pop(option) for option in ("name", "force")}
    with Steps(output) as steps, output.progress() as progress:
        if dry_run:
            planned = plan(ref, **options, out=out, progress=progress, workspace=space)
        else:
            result = retrain(
                ref,
                **options,
                out=out,
                **naming,
                torchrun=ctx.meta.get(_TORCHRUN, []),
                listener=steps,
                progress=progress,
                workspace=space,
            )
    if dry_run:
        _print_plan(output, planned)
    else:
        _print_result(output, result)


def _print_plan(output: Output, plan: dict[str, Any]) -> None:
    if output.json:
        output.document({name: value for name, value in plan.items() if name != "device"})
        return
    rows = (
        ("trained", f"{plan['trained']:,} of {plan['parameters']:,} parameters, {percent(plan['density'])}"),
        ("weights", human_bytes(plan["weight_bytes"])),
        ("optimizer", f"{human_bytes(plan['optimizer_bytes'])}, mask included"),
        ("gradients", f"{human_bytes(plan['gradient_bytes'])} between backward pass and step"),
        ("steps", f"{plan['steps']:,}, each of {counted(plan['batch'], 'record')}, from {plan['records']:,}"),
        ("device", plan["device"]),
    )
    for label, text in rows:
        output.data(f"{label:<12} {text}")


def _print_result(output: Output, result: RetrainResult) -> None:
    if output.json:
        output.document(result.to_json())
        return
    output.note(f"loss {result.first_loss:.4f} -> {result.last_loss:.4f} in {result.seconds:,.1f} s")
    output.note(
        f"trained {percent(result.density)} of {counted(result.coordinates, 'coordinate')}; "
        f"{percent(result.visible_density)} changed visibly, all inside the mask"
    )
    if result.digest is not None:
        output.note(f"registered as {result.ref}  {result.digest.short}")
    output.value(str(result.model))


_LINES = 20
"""Lines for a whole run, about."""


class Steps:
    """Shows every step, or some of them; a ``maskreg.train.runs.engine.StepListener``."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._steps = 0
        self._began = 0.0
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def begin(self, done: int, steps: int) -> None:
        """Training begins, or resumes."""
        self._steps, self._began = steps, time.monotonic()
        if done:
            self._output.note(f"resuming after step {done} of {steps}")
        if done < steps and not self._output.quiet and sys.stderr.isatty():
            self._draw(done)

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A step is done."""
        number = metrics["step"]
        if number == 1 and self._steps > 1:
            self._output.note(f"loss before the first step: {metrics['loss']:.4f}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=number, description=_description(metrics))
        elif number == self._steps or number % max(1, self._steps // _LINES) == 0 or "moved" in metrics:
            self._output.note(f"step {number:>{len(str(self._steps))}}/{self._steps}  {_description(metrics)}")
        if number == self._steps:
            self._stop()

    def _draw(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
        self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._task = self._bar.add_task("train", total=self._steps, completed=done)
        if self._output.waiting is not None:
            self._output.waiting.hide()
        self._bar.start()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            if self._output.waiting is not None:
                self._output.waiting.show()
        self._bar = self._task = None

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()


def _description(metrics: Mapping[str, Any]) -> str:
    norm, seconds = metrics["grad_norm"], max(metrics["seconds"], 1e-9)
    parts = [f"loss {metrics['loss']:.4f}", f"lr {metrics['lr']:.2e}"]
    parts += [] if norm is None else [f"grad {norm:.3g}"]
    parts += [f"{metrics['tokens'] / seconds:,.0f} tokens/s"] if metrics["tokens"] else [f"{seconds:.2f} s"]
    parts += [f"moved {percent(metrics['moved'])}"] if "moved" in metrics else []
    return "  ".join(parts)
