"""``maskreg retrain``: train the coordinates of a mask, from its source."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import Card, Ref
from maskreg.words import human_bytes

from .command import Command
from .output import Output
from .values import NAME, OUT, REF

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint.base import Checkpoint
    from maskreg.digest import Digest
    from maskreg.registry import Registry
    from maskreg.store.reflog import RefEntry
    from maskreg.train.runs.folder import Folder
    from maskreg.train.runs.prepare import Asked, Prepared

_LAUNCHER = "maskreg.train.launcher"


class _WithLauncher(Command):
    # What comes after -- is torchrun's, also where the reference is left out.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta[_LAUNCHER] = args[:cut], args[cut + 1 :]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- TORCHRUN OPTIONS]"]


@click.command(
    cls=_WithLauncher,
    example="""
    maskreg retrain qwen3-8b-opd --recipe opd --teacher ./Qwen3-32B --data prompts.jsonl -o run
    maskreg retrain qwen3-8b-opd --source ./Qwen3 --recipe sft --data pairs.jsonl -o run -- --nproc-per-node 8
    maskreg retrain qwen3-8b-opd --recipe sft --data pairs.jsonl -o rand --mask random-per-tensor --mask-seed 1
    maskreg retrain --mask full --source ./Qwen3-8B --recipe losses:mine --data pairs.jsonl -o full --name mine
    """,
)
@click.argument("ref", type=REF, required=False)
@click.option("--source", metavar="CKPT", help="Checkpoint to train, the mask's source: directory or hub id.")
@click.option("--recipe", required=True, help="opd, sft, or your own as module:function.")
@click.option("--teacher", default="", metavar="CKPT", help="For opd: directory or hub id.")
@click.option("--data", type=click.Path(path_type=Path), required=True, metavar="JSONL", help="One record a line.")
@click.option("-o", "--out", type=OUT, required=True, help="Folder of the run; the model appears in OUT/model.")
@click.option("--name", "new", type=NAME, metavar="NAME[:TAG]", help="Register what changed as an artifact.")
@click.option("--mask", "control", default="", metavar="KIND", help="Train a control in place of the mask; see above.")
@click.option("--mask-seed", type=click.IntRange(min=0), help="Of a control that chance decides; 0.")
@click.option("--mask-density", type=float, help="For subset: share of all coordinates that are left.")
@click.option("--loss", default="", help="For opd: full (whole vocabulary, the default) or sampled (its tokens alone).")
@click.option("--steps", type=click.IntRange(min=1), default=100, show_default=True, help="Of the optimizer.")
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True, help="Records of a step.")
@click.option("--micro-batch-size", type=click.IntRange(min=1), help="Records at once in a process; the batch.")
@click.option("--optimizer", type=click.Choice(["adamw", "sgd"]), default="adamw", show_default=True)
@click.option("--lr", type=click.FloatRange(min=0), help="Learning rate; 1e-6, for sgd 1e-2.")
@click.option("--betas", type=(float, float), default=(0.9, 0.999), show_default=True, help="Of adamw.")
@click.option("--weight-decay", type=click.FloatRange(min=0), default=0.0, show_default=True)
@click.option("--momentum", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Of sgd.")
@click.option("--clip", type=click.FloatRange(min=0), help="Largest norm of the masked gradient; 1, and 0 for none.")
@click.option("--schedule", type=click.Choice(["constant", "linear", "cosine"]), default="constant", show_default=True)
@click.option("--warmup", type=click.IntRange(min=0), default=0, show_default=True, help="Steps of rising rate.")
@click.option("--max-length", type=click.IntRange(min=2), help="Tokens of prompt and completion; 1024, or the model's.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=256, show_default=True, help="For opd: sampled.")
@click.option("--temperature", type=click.FloatRange(min=0), default=1.0, show_default=True, help="For opd: sampling.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of data order and sampling.")
@click.option(
    "--gradients",
    type=click.Choice(["packed", "dense", "in-backward"]),
    help="How they wait for the step: packed to the mask, as they are (ddp), or not at all.",
)
@click.option(
    "--dtype",
    type=click.Choice(["stored", "float32"]),
    default="stored",
    show_default=True,
    help="Of weights and forward pass; updates are fp32 in any case.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--parallel", type=click.Choice(["fsdp", "ddp"]), default="fsdp", show_default=True, help="With torchrun."
)
@click.option("--save-every", type=click.IntRange(min=1), default=50, show_default=True, help="Steps to a checkpoint.")
@click.option("--download", is_flag=True, help="Fetch hub checkpoints that are not in the cache.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what the run would take.")
@click.pass_context
def command(ctx: click.Context, /, ref: Ref | None, **given: Any) -> None:
    """Train only the coordinates of a mask.

    Training begins at the source. What is not in the mask keeps its bits, and has no optimizer state. The same
    command goes on with a run that was interrupted. At the end the model is compared with its source, bit by bit.

    \b
    opd  {"prompt": ...} or {"messages": [...]}; the student samples, the teacher scores
    sft  {"prompt": ..., "completion": ...}, {"messages": [...]} or {"text": ...}

    Controls for --mask are full (all coordinates) and what `maskreg baseline` makes at the mask's density:
    random-per-tensor, exponent-matched, low-magnitude, rounding-null, subset, complement and others.

    Options after -- go to torchrun, as in -- --nproc-per-node 2; without any, one process trains.
    """  # noqa: D301
    output = ctx.ensure_object(Output)
    new: Ref | None = given["new"]
    if ref is None and given["control"] != "full":
        raise click.UsageError("say which mask to train: maskreg retrain REF; or train everything with --mask full")
    if ref is None and given["source"] is None:
        raise click.UsageError("without a mask there has to be a --source")
    from maskreg.train.runs.folder import Folder

    from .places import local, note_catalog, remember

    folder = Folder(given["out"])
    folder.begun()
    here = local()
    artifact = _artifact(ref)
    head = here.head(new) if new else None
    prepared = _prepared(output, here, artifact, _asked(given), given, ref)
    if given["dry_run"]:
        _tell_plan(output, prepared)
        return
    summary = _trained(output, folder, prepared, ctx.meta.get(_LAUNCHER, []))
    if new is not None:
        recipe = prepared.setup.recipe
        card = Card(_family(here, ref), recipe if ":" not in recipe else "custom").checked()
        digest = _stored(output, folder, prepared)
        summary |= _published(output, here, digest, new, head, card)
        remember(here, here.artifact(digest).manifest.target.root, folder.model)
        note_catalog(output, here)
    _tell(output, summary)


def _asked(given: dict[str, Any]) -> Asked:
    from maskreg.train.runs.prepare import Asked

    of_setup = (
        "optimizer", "lr", "betas", "weight_decay", "momentum", "clip", "schedule", "warmup", "gradients", "dtype",
        "steps", "seed", "max_new_tokens", "temperature",
    )  # fmt: skip
    options = {name: given[name] for name in of_setup}
    options |= {"batch": given["batch_size"], "micro_batch": given["micro_batch_size"]}
    names = ("recipe", "data", "teacher", "loss", "control", "mask_seed", "mask_density", "max_length", "device")
    return Asked(**{name: given[name] for name in (*names, "parallel", "save_every", "download")}, options=options)


def _artifact(ref: Ref | None) -> Artifact | None:
    from maskreg.train import artifact_of

    return None if ref is None else artifact_of(str(ref))


def _prepared(
    output: Output, here: Registry, artifact: Artifact | None, asked: Asked, given: dict[str, Any], ref: Ref | None
) -> Prepared:
    from maskreg.checkpoint import open_checkpoint
    from maskreg.train.runs.prepare import check_source, prepare

    from .places import remember
    from .sources import apply_to_first

    root = here.root
    assert root is not None  # the local registry is a directory
    place = given["source"]
    if place is None and artifact is not None:

        def found(checkpoint: Checkpoint) -> Path:
            check_source(artifact, checkpoint)
            return checkpoint.path

        again = f"maskreg retrain {ref} ..."
        place, _ = apply_to_first(artifact.manifest.source, here.catalog, found, download=asked.download, again=again)
    with closing(open_checkpoint(place, download=asked.download)) as source, output.progress() as progress:
        prepared = prepare(asked, artifact, source, root, progress=progress)
    remember(here, prepared.setup.source, source.path)
    for note in prepared.notes:
        output.note(f"note: {note}")
    return prepared


def _trained(output: Output, folder: Folder, prepared: Prepared, options: list[str]) -> dict[str, Any]:
    from maskreg.train.runs.run import complete

    from .steps import Steps

    folder.check(prepared.setup)
    if folder.summary() is not None:
        output.note(f"{folder.path} is complete already")
    with Steps(output) as steps, output.progress() as progress:
        return complete(folder, prepared, options, steps, progress=progress)


def _family(here: Registry, ref: Ref | None) -> str:
    from maskreg.errors import NotFoundError

    try:
        entry = here.resolve(ref).entry if ref is not None else None
    except NotFoundError:
        return ""
    return entry.card.family if entry else ""


def _stored(output: Output, folder: Folder, prepared: Prepared) -> Digest:
    from maskreg.train.runs.run import register

    with output.progress() as progress:
        return register(folder, prepared.setup, prepared.places, progress=progress).digest


def _published(
    output: Output, here: Registry, digest: Digest, new: Ref, head: RefEntry | None, card: Card
) -> dict[str, Any]:
    from .naming import publish

    was = publish(output, here, new, digest, card, head)
    return {"ref": str(new), "digest": str(digest), "was": was}


def _tell_plan(output: Output, prepared: Prepared) -> None:
    from maskreg.checkpoint import open_checkpoint
    from maskreg.train.runs.run import plan

    with closing(open_checkpoint(prepared.places.source)) as source:
        found = plan(prepared.setup, prepared.places, source)
    if output.json:
        output.document({**found, "records": prepared.records})
        return
    rows = (
        ("trained", f"{found['trained']:,} of {found['parameters']:,} parameters, density {found['density']:.4f}"),
        ("weights", human_bytes(found["weight_bytes"])),
        ("optimizer", f"{human_bytes(found['optimizer_bytes'])}, mask included"),
        ("gradients", f"{human_bytes(found['gradient_bytes'])} between backward passes and step"),
        ("steps", f"{found['steps']:,} of {found['batch']:,} records, from {prepared.records:,}"),
        ("device", prepared.places.device),
    )
    for label, text in rows:
        output.data(f"{label:<12} {text}")


def _tell(output: Output, summary: dict[str, Any]) -> None:
    if output.json:
        output.document(summary)
        return
    output.note(f"loss {summary['first_loss']:.4f} -> {summary['last_loss']:.4f} in {summary['seconds']:,.1f} s")
    output.note(
        f"trained {summary['density']:.4f} of {summary['coordinates']:,} coordinates, "
        f"{summary['visible_density']:.4f} changed visibly, all inside the mask"
    )
    if "ref" in summary:
        output.note(f"registered as {summary['ref']}  {summary['digest'][:19]}")
    output.data(summary["model"])
