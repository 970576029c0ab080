"""``maskreg retrain``: train the coordinates of a mask, from its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes, percent

from .command import Command, workspace
from .output import Output
from .values import FORCE, NAME, OUT, POSITIVE, REF, SEED, IntegerType, NumberType

if TYPE_CHECKING:
    from pathlib import Path

    from maskreg.progress import Progress
    from maskreg.workspace.verbs.retrain import RetrainResult

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
    maskreg retrain qwen3-8b-opd --recipe grpo --reward rewards:right --data prompts.jsonl -o run
    maskreg retrain qwen3-8b-opd --source ./Qwen3 --recipe sft --data pairs.jsonl -o run -- --nproc-per-node 8
    maskreg retrain --control full --source ./Qwen3-8B --recipe sft --data pairs.jsonl -o full
    """,
)
@click.argument("ref", type=REF, required=False)
@click.option("--source", metavar="CKPT", help="Checkpoint to train, the mask's source: directory or hub id.")
@click.option("--recipe", required=True, metavar="RECIPE", help="sft, opd or grpo.")
@click.option("--data", type=click.Path(), required=True, metavar="JSONL", help="File with one record per line.")
@click.option(
    "-o", "--out", type=OUT, required=True, help="Folder of the run, made if missing; the model is in OUT/model."
)
@click.option("--config", type=click.Path(), metavar="YAML", help="Other keys of TRL's configuration.")
@click.option("--teacher", default="", metavar="CKPT", help="Teacher of opd: directory or hub id.")
@click.option("--reward", default="", metavar="MODULE:FUNCTION", help="Reward of grpo, as TRL calls it.")
@click.option("--loss", default="", metavar="MODULE:FUNCTION", help="Loss of sft in place of cross-entropy.")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="Store what changed as an artifact of this name.")
@FORCE
@click.option("--control", default="", metavar="KIND", help="Train a control instead of the mask; see above.")
@click.option("--control-seed", type=SEED, metavar="N", help="Seed for random controls [0].")
@click.option("--steps", type=POSITIVE, default=100, show_default=True, help="Optimizer steps.")
@click.option("--batch-size", type=POSITIVE, default=8, show_default=True, help="Records per step; of grpo, samples.")
@click.option("--optimizer", type=click.Choice(["adamw", "sgd"]), default="adamw", show_default=True, help="Optimizer.")
@click.option("--lr", type=NumberType(min=0), help="Learning rate [1e-6; sgd: 1e-2].")
@click.option("--max-length", type=IntegerType(2), help="Tokens of prompt and completion that sft reads [1024].")
@click.option("--max-new-tokens", type=POSITIVE, help="Tokens that opd and grpo sample [256].")
@click.option(
    "--seed", type=IntegerType(0, (1 << 32) - 1), default=0, show_default=True, help="Seed of data order and sampling."
)
@click.option(
    "--gradients",
    type=click.Choice(["packed", "dense"]),
    help="Gradient storage: packed to the mask, or dense, as copies of the model in several processes need.",
)
@click.option(
    "--dtype",
    type=click.Choice(["stored", "float32"]),
    default="stored",
    show_default=True,
    help="Dtype of weights and forward pass; updates are always fp32.",
)
@click.option("--save-every", type=POSITIVE, default=50, show_default=True, help="Steps per save.")
@click.option("--download", is_flag=True, help="Fetch hub checkpoints that are not in the cache.")
@click.option("--dry-run", is_flag=True, help="Check everything, and print what the run would need.")
@click.pass_context
def command(ctx: click.Context, /, ref: Ref | None, out: Path, dry_run: bool, **options: Any) -> None:
    """Train only the coordinates of a mask, with TRL.

    Training starts from the mask's source. Coordinates outside the mask keep their bits and have no optimizer state.
    The same command resumes an interrupted run. At the end the model is compared with its source, bit by bit.

    \b
    sft   {"prompt": ..., "completion": ...}, {"messages": [...]}
          or {"text": ...}
    opd   {"prompt": ...}; the student samples, the teacher scores
    grpo  {"prompt": ...}, and what the reward needs beside

    Controls are full (all coordinates) and the kinds of `maskreg baseline`, at the mask's density:
    random-per-tensor, exponent-matched, low-magnitude, rounding-null, complement and others.

    Options after -- go to torchrun, as in -- --nproc-per-node 2; without any, one process trains.
    """  # noqa: D301
    output = ctx.ensure_object(Output)
    from maskreg.workspace.verbs.retrain import plan, retrain

    space = workspace(output)
    naming = {option: options.pop(option) for option in ("name", "force")}
    with output.progress() as progress:
        if dry_run:
            planned = plan(ref, **options, out=out, progress=progress, workspace=space)
        else:
            result = retrain(
                ref,
                **options,
                out=out,
                **naming,
                torchrun=ctx.meta.get(_TORCHRUN, []),
                listener=_telling(output, progress),
                progress=progress,
                workspace=space,
            )
    if dry_run:
        _print_plan(output, planned)
    else:
        _print_result(output, result)


def _print_plan(output: Output, plan: dict[str, Any]) -> None:
    if output.json:
        output.document(plan)
        return
    rows = (
        ("trained", f"{plan['trained']:,} of {plan['parameters']:,} parameters, {percent(plan['density'])}"),
        ("weights", human_bytes(plan["weight_bytes"])),
        ("optimizer", f"{human_bytes(plan['optimizer_bytes'])}, mask included"),
        ("gradients", f"{human_bytes(plan['gradient_bytes'])} between backward pass and step"),
        ("steps", f"{plan['steps']:,}, each of {counted(plan['batch_size'], 'record')}, from {plan['records']:,}"),
    )
    for label, text in rows:
        output.data(f"{label:<12} {text}")


def _print_result(output: Output, result: RetrainResult) -> None:
    if output.json:
        output.document(result.to_json())
        return
    if result.first_loss is not None:
        output.note(f"loss {result.first_loss:.4f} -> {result.last_loss:.4f} in {result.seconds:,.1f} s")
    output.note(
        f"trained {percent(result.density)} of {counted(result.coordinates, 'coordinate')}; "
        f"{percent(result.visible_density)} changed visibly, all inside the mask"
    )
    if result.digest is not None:
        output.note(f"registered as {result.ref}  {result.digest.short}")
    output.value(str(result.model))


_SHOWN = {"grad": "grad_norm", "reward": "reward"}
"""Metrics that a step shows beside its loss, where it has them."""

_LINES = 20
"""Lines for a whole run, about."""


def _telling(output: Output, progress: Progress) -> Callable[[Mapping[str, Any]], None]:
    """A listener that notes some of the steps, and has the others in the line of progress."""

    def told(metrics: Mapping[str, Any]) -> None:
        number, steps = metrics["step"], metrics["steps"]
        if number == 1 and steps > 1:
            output.note(f"loss before the first step: {metrics['loss']:.4f}")
        step = f"step {number:>{len(str(steps))}}/{steps}  {_description(metrics)}"
        progress.start(step, 0)
        if number == steps or number % max(1, steps // _LINES) == 0:
            output.note(step)

    return told


def _description(metrics: Mapping[str, Any]) -> str:
    parts = [f"loss {metrics['loss']:.4f}", f"lr {metrics['lr']:.2e}"]
    parts += [f"{name} {metrics[key]:.3g}" for name, key in _SHOWN.items() if metrics.get(key) is not None]
    return "  ".join([*parts, f"{metrics['seconds']:.2f} s"])
