"""``maskreg retrain``: train the coordinates of a mask, from its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from maskreg.parallel import is_first
from maskreg.ref import Ref
from maskreg.words import counted, percent
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .values import FORCE, NAME, OUT, POSITIVE, REF, SEED

if TYPE_CHECKING:
    from pathlib import Path

    from maskreg.progress import Progress


@click.command(
    cls=Command,
    example="""
    maskreg retrain qwen3-8b-opd --recipe opd --teacher ./Qwen3-32B --data prompts.jsonl -o run
    maskreg retrain qwen3-8b-opd --recipe grpo --reward rewards:right --data prompts.jsonl -o run
    maskreg retrain qwen3-8b-opd --source ./Qwen3 --recipe sft --data pairs.jsonl -o run
    maskreg retrain --control full --source ./Qwen3-8B --recipe sft --data pairs.jsonl -o full -c max_steps=40
    """,
)
@click.argument("ref", type=REF, required=False)
@click.option("--source", metavar="CKPT", help="Checkpoint to train, the mask's source: directory or hub id.")
@click.option("--recipe", required=True, metavar="RECIPE", help="sft, opd or grpo.")
@click.option("--data", type=click.Path(), required=True, metavar="JSONL", help="File with one record per line.")
@click.option("-o", "--out", type=OUT, required=True, help="Folder of the run; the model is in OUT/model.")
@click.option("-c", "--config", multiple=True, metavar="YAML|KEY=VALUE", help="Keys of TRL (repeatable).")
@click.option("--teacher", default="", metavar="CKPT", help="Teacher of opd: directory or hub id.")
@click.option("--reward", default="", metavar="MODULE:FUNCTION", help="Reward of grpo, as TRL calls it.")
@click.option("--loss", default="", metavar="MODULE:FUNCTION", help="Loss of sft in place of cross-entropy.")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="Store what changed as an artifact of this name.")
@FORCE
@click.option("--control", default="", metavar="KIND", help="Train a control instead of the mask; see above.")
@click.option("--control-seed", type=SEED, metavar="N", help="Seed for random controls [0].")
@click.option("--batch-size", type=POSITIVE, default=8, show_default=True, help="Records per step; of grpo, samples.")
@click.option("--gradients", type=click.Choice(["packed", "dense"]), help="How gradients are stored.")
@click.option("--dtype", type=click.Choice(["stored", "float32"]), default="stored", help="Of weights [stored].")
@click.option("--download", is_flag=True, help="Fetch hub checkpoints that are not in the cache.")
@click.option("--dry-run", is_flag=True, help="Check all that needs no model in memory, and train nothing.")
@click.pass_obj
def command(output: Output, /, ref: Ref | None, out: Path, dry_run: bool, **options: Any) -> None:
    """Train only the coordinates of a mask, with TRL.

    Training starts from the mask's source. Coordinates outside the mask keep their bits and have no optimizer state.
    The same command resumes an interrupted run. At the end the model is compared with its source, bit by bit.

    \b
    sft   {"prompt": ..., "completion": ...}, {"messages": [...]}
          or {"text": ...}
    opd   {"prompt": ...}; the student samples, the teacher scores
    grpo  {"prompt": ...}, and what the reward needs beside

    TRL's own defaults hold, but for max_steps (100), save_steps (50), learning_rate (1e-6) and seed (0). Its key optim
    is adamw_torch or sgd.

    Gradients are packed to the mask, or dense, as copies of the model in several processes need. Updates are always
    fp32; the dtype of weights and forward pass does not matter.

    Controls are full (all coordinates) and the kinds of `maskreg baseline`, at the mask's density:
    random-per-tensor, exponent-matched, low-magnitude, rounding-null, complement and others.

    In several processes, put torchrun --nproc-per-node 8 -m in front of `maskreg retrain`, or accelerate launch -m.
    """  # noqa: D301
    space = workspace(output)
    is_told = is_first()  # the other processes print errors alone
    naming = {option: options.pop(option) for option in ("name", "force")}
    with output.progress() as progress:
        if dry_run:
            planned = verbs.retrain.plan(ref, **options, out=out, progress=progress, workspace=space)
        else:
            result = verbs.retrain.retrain(
                ref,
                **options,
                out=out,
                **naming,
                listener=_telling(output, progress) if is_told else None,
                progress=progress,
                workspace=space,
            )
    if dry_run:
        _print_plan(output, planned)
    elif is_told:
        _print_result(output, result)


def _print_plan(output: Output, plan: dict[str, Any]) -> None:
    output.answer(plan)
    output.data(
        f"{plan['trained']:,} of {plan['parameters']:,} parameters would be trained, {percent(plan['density'])}"
    )
    steps, batch = counted(plan["steps"], "step"), counted(plan["batch_size"], "record")
    output.data(f"{steps}, each of {batch}, from {plan['records']:,}")


def _print_result(output: Output, result: verbs.retrain.RetrainResult) -> None:
    output.answer(result)
    if result.first_loss is not None:
        output.note(f"loss {result.first_loss:.4f} -> {result.last_loss:.4f} in {result.seconds:,.1f} s")
    output.note(
        f"trained {percent(result.density)} of {counted(result.coordinates, 'coordinate')}; "
        f"{percent(result.visible_density)} changed visibly, all inside the mask"
    )
    if result.digest is not None:
        output.note(f"registered as {result.ref}  {result.digest.short}")
    output.value(str(result.model))


_SHOWN = ("loss", "learning_rate", "grad_norm", "reward", "seconds")
"""What is shown of a step, where it has it."""

_LINES = 20
"""Lines for a whole run, about."""


def _telling(output: Output, progress: Progress) -> Callable[[Mapping[str, Any]], None]:
    """A listener that notes some of the steps, and has the others in the line of progress."""

    def told(metrics: Mapping[str, Any]) -> None:
        number, steps = metrics["step"], metrics["steps"]
        shown = "  ".join(f"{name} {metrics[name]:.4g}" for name in _SHOWN if metrics.get(name) is not None)
        step = f"step {number:>{len(str(steps))}}/{steps}  {shown}"
        progress.start(step, 0)
        if number in (1, steps) or number % max(1, steps // _LINES) == 0:
            output.note(step)

    return told
