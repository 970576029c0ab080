"""``maskreg extract``: compare two checkpoints and keep what moved."""

from __future__ import annotations

from contextlib import closing

import click

from maskreg.ref import Card, Ref

from .command import Command
from .output import Output
from .values import NAME, PAIR


@click.command(
    cls=Command,
    example="""
    maskreg extract ./Qwen3-8B ./Qwen3-8B-opd --name qwen3-8b-opd --family qwen3-8b --method opd
    maskreg extract Qwen/Qwen3-8B ./out/step-400 --name team/qwen3-8b-rlvr:v1 --method rlvr --reversible
    """,
)
@click.argument("source")
@click.argument("target")
@click.option("--name", "ref", type=NAME, required=True, metavar="NAME[:TAG]", help="What to call the artifact.")
@click.option("--family", default="", help="Model family, such as qwen3-8b.")
@click.option("--method", default="", help="How the target was trained: opd, rlvr, sft or another word.")
@click.option("--license", default="", help="SPDX identifier, such as apache-2.0.")
@click.option("--description", default="", help="One paragraph for people.")
@click.option("--meta", type=PAIR, multiple=True, help="Run metadata; repeatable.")
@click.option("--rule", default="exact", show_default=True, help="What counts as moved: exact, abs:TAU or rel:ETA.")
@click.option("--mask-only", is_flag=True, help="Keep which coordinates moved, not to what.")
@click.option("--reversible", is_flag=True, help="Keep the way back too, for apply --revert.")
@click.option("--allow-mismatch", is_flag=True, help="Store tensors whole that one side lacks or shapes differently.")
@click.option("--download", is_flag=True, help="Fetch hub checkpoints that are not in the cache.")
@click.option("--device", default="cpu", show_default=True, help="Where to compare and encode: cpu or cuda.")
@click.pass_obj
def command(
    output: Output,
    source: str,
    target: str,
    ref: Ref,
    family: str,
    method: str,
    license: str,
    description: str,
    meta: tuple[tuple[str, str], ...],
    rule: str,
    mask_only: bool,
    reversible: bool,
    allow_mismatch: bool,
    download: bool,
    device: str,
) -> None:
    """Compare two checkpoints and store what moved.

    SOURCE and TARGET are a .safetensors file, a directory of shards, or a hub id (org/name[@revision]). The
    artifact goes into the local registry under NAME; its summary is printed.
    """
    if mask_only and reversible:
        raise click.UsageError("--mask-only keeps no values, so it cannot be --reversible")
    from maskreg.checkpoint import open_checkpoint
    from maskreg.codec import DEFAULT_CODEC, get_codec
    from maskreg.flow.extract.extraction import extract
    from maskreg.rules import parse_rule

    from .naming import publish
    from .places import local, note_catalog, remember
    from .summary import described, summary

    parse_rule(rule)
    card = Card(family, method, license, description, dict(meta)).checked()
    here = local()
    assert here.root is not None  # the local registry is a directory
    head = here.head(ref)
    with (
        closing(open_checkpoint(source, download=download)) as before,
        closing(open_checkpoint(target, download=download)) as after,
        output.progress() as progress,
    ):
        output.wait(mask_only or get_codec(DEFAULT_CODEC).is_compiled(encode=True))
        made = extract(
            before,
            after,
            here.root,
            rule=rule,
            mask_only=mask_only,
            reversible=reversible,
            allow_mismatch=allow_mismatch,
            device=device,
            progress=progress,
        )
    if head is not None and head.digest == made.digest:
        # The same artifact again: what people said about it holds.
        card = _merged(head.card, card)
    was = publish(output, here, ref, made.digest, card, head)
    manifest = here.artifact(made.digest).manifest
    remember(here, manifest.source.root, before.path)
    remember(here, manifest.target.root, after.path)
    note_catalog(output, here)
    if output.json:
        output.document({**described(ref, made.digest, manifest, card), "was": was, "notes": list(made.notes)})
    else:
        output.data(summary(ref, made.digest, manifest, card, notes=made.notes))


def _merged(old: Card, new: Card) -> Card:
    return Card(
        new.family or old.family,
        new.method or old.method,
        new.license or old.license,
        new.description or old.description,
        {key: value for key, value in {**old.meta, **new.meta}.items() if value},
    )
