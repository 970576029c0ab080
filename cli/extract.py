"""``maskreg extract``: store what moved between two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from maskreg.workspace import verbs

from .command import Command, workspace
from .jobs import do_there, on_server
from .output import Output
from .values import FORCE, NAME, PAIR


@click.command(
    cls=Command,
    example="""
    maskreg extract ./Qwen3-8B ./Qwen3-8B-opd --name qwen3-8b-opd --family qwen3-8b --method opd
    maskreg extract Qwen/Qwen3-8B ./out/step-400 --name team/qwen3-8b-rlvr:v1 --method rlvr --reversible
    maskreg extract Qwen3-8B Qwen3-8B-opd --on lab --name team/qwen3-8b-opd --method opd
    """,
)
@click.argument("checkpoints", nargs=-1, metavar="SOURCE TARGET")
@click.option("--name", type=NAME, required=True, metavar="NAME[:TAG]", help="Name of the artifact.")
@click.option("--family", default="", help="Model family, such as qwen3-8b.")
@click.option("--method", default="", help="Training method: opd, rlvr, sft or another word.")
@click.option("--license", default="", help="License as an SPDX identifier, such as apache-2.0.")
@click.option("--description", default="", help="Free text, one paragraph.")
@click.option("--meta", type=PAIR, multiple=True, help="Run metadata (repeatable).")
@click.option("--rule", default="exact", show_default=True, help="What counts as moved: exact, abs:TAU or rel:ETA.")
@click.option("--mask-only", is_flag=True, help="Store the mask without the delta.")
@click.option("--reversible", is_flag=True, help="Store the reverse delta too, for apply --revert.")
@click.option("--allow-mismatch", is_flag=True, help="Store tensors whole that one side lacks or has in another shape.")
@click.option("--download", is_flag=True, help="Download hub checkpoints that are not cached.")
@click.option("--with-code", is_flag=True, help="Take along differing files that can run code, such as .py.")
@FORCE
@click.option("--device", default="cpu", show_default=True, help="Device to diff on: cpu or cuda.")
@on_server
@click.pass_obj
def command(
    output: Output,
    /,
    checkpoints: tuple[str, ...],
    meta: tuple[tuple[str, str], ...],
    remote: str | None,
    wait: bool,
    **options: Any,
) -> None:
    """Diff two checkpoints and store what moved.

    SOURCE and TARGET are each a .safetensors file, a directory of shards, a hub id (org/name[@revision]), or what a run
    leaves behind: a distributed PyTorch checkpoint, the files of FSDP ranks, a .bin or .pt file. The
    artifact is stored in the local registry under NAME, and its summary is printed. A NAME that was pulled or pushed,
    or set by another user, moves to another artifact when you confirm it on a terminal, or with --force; otherwise it
    is refused before anything is read. Nothing is lost: its history keeps the old one (maskreg log NAME).

    With --on, the server does it, with its own checkpoints: SOURCE and TARGET are then names there, which
    `maskreg jobs sources` lists, and the artifact is stored there.
    """
    source, target = pair_of(checkpoints)
    if remote is not None:
        here = {name: options.pop(name) for name in ("device", "download", "with_code", "force")}
        request = {"source": source, "target": target, **options}
        do_there(output, "extract", remote, request, {**here, "meta": meta, "wait": wait})
        return
    from .summary import tell_stored

    with output.progress() as progress:
        stored = verbs.extract.extract(
            source, target, meta=dict(meta), **options, progress=progress, workspace=workspace(output)
        )
    tell_stored(output, stored)


def pair_of(checkpoints: Sequence[str]) -> tuple[str, str]:
    """The source and the target of one extraction."""
    if len(checkpoints) < 2:
        raise click.UsageError(f"Missing argument '{('SOURCE', 'TARGET')[len(checkpoints)]}'.")
    if len(checkpoints) > 2:
        extra = " ".join(checkpoints[2:])
        raise click.UsageError(f"Got unexpected extra argument ({extra}); extract one checkpoint of a run at a time")
    return checkpoints[0], checkpoints[1]
