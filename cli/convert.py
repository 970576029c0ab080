"""``maskreg convert``: an artifact in another tool's format, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from maskreg.ref import Ref, parse_artifact
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .values import NAME, OUT, PAIR

_FORMATS = click.Choice(["slime", "skyrl", "nemo-rl", "sparse-safetensors", "safetensors-mask"])


@click.command(
    cls=Command,
    example="""
    maskreg convert qwen3-8b-opd --to slime --source ./Qwen3-8B -o weight_v000001
    maskreg convert weight_v000001 --from slime --source ./Qwen3-8B --name qwen3-8b-step:v1
    maskreg convert qwen3-8b-opd --to sparse-safetensors -o opd.safetensors
    """,
)
@click.argument("subject", metavar="REF|PATH")
@click.option("--to", "to", type=_FORMATS, help="Write the artifact REF in this format.")
@click.option("--from", "from_", type=_FORMATS, help="Read PATH, which is in this format.")
@click.option("--source", metavar="CKPT", help="Checkpoint that the update is made on: file, directory or hub id.")
@click.option("-o", "--out", type=OUT, help="With --to: output path; missing folders are made.")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="With --from: name of the result.")
@click.option("--family", default="", help="With --from: model family, such as qwen3-8b.")
@click.option("--method", default="", help="With --from: how the target was trained: opd, rlvr, sft or another word.")
@click.option("--license", default="", help="With --from: SPDX identifier.")
@click.option("--description", default="", help="With --from: free text, one paragraph.")
@click.option("--set", "settings", type=PAIR, multiple=True, metavar="KEY=VALUE", help="With --to: a setting of it.")
@click.option("--with-code", is_flag=True, help="Take along small files that can run code, such as .py.")
@click.option("--download", is_flag=True, help="Download the checkpoint if it is not cached.")
@click.option("--force", is_flag=True, help="Replace an earlier output, or move a name that others might use.")
@click.pass_obj
def command(output: Output, /, subject: str, to: str | None, from_: str | None, **options: Any) -> None:
    """Convert an artifact to another tool's format, or back.

    With --to, the artifact REF is written to -o. With --from, an artifact is made of PATH and called --name. Formats of
    values need the source checkpoint; --to looks for it where this machine has seen it. A note says what a format
    cannot hold. Settings: slime has encoding=xor|overwrite, checksum=xxh3-128|adler32, version=N and base_version=N;
    skyrl has version=N, nemo-rl encoding=xor|overwrite, sparse-safetensors model_version=N.
    """
    if (to is None) == (from_ is None):
        raise click.UsageError("choose one: --to FORMAT to write an artifact, or --from FORMAT to read a path")
    if to is not None:
        _write(output, subject, to, options)
    elif from_ is not None:
        _read(output, subject, from_, options)


def _write(output: Output, subject: str, to: str, options: dict[str, Any]) -> None:
    _refuse(options, ("name", "family", "method", "license", "description"), "--from")
    out: Path | None = options["out"]
    if out is None:
        raise click.UsageError("say where to write: -o PATH")
    artifact = parse_artifact(subject)

    with output.progress() as progress:
        how = {key: options[key] for key in ("source", "with_code", "force", "download")}
        how |= {"progress": progress, "workspace": workspace(output)}
        converted = verbs.convert.convert_to(artifact, to, out, options=dict(options["settings"]), **how)
    _tell(output, converted)


def _read(output: Output, subject: str, from_: str, options: dict[str, Any]) -> None:
    _refuse(options, ("out", "settings"), "--to")
    source: str | None = options["source"]
    name: Ref | None = options["name"]
    if source is None or name is None:
        raise click.UsageError("reading a format needs the checkpoint and a name: --source CKPT --name NAME[:TAG]")

    from .summary import tell_stored

    keys = ("family", "method", "license", "description", "with_code", "force", "download")
    with output.progress() as progress:
        how = {key: options[key] for key in keys} | {"progress": progress, "workspace": workspace(output)}
        stored = verbs.convert.convert_from(subject, from_, source, name, **how)
    tell_stored(output, stored)


def _refuse(options: dict[str, Any], names: tuple[str, ...], direction: str) -> None:
    given = [name for name in names if options[name] not in (None, "", ())]
    if given:
        flag = {"out": "-o", "settings": "--set"}.get(given[0], f"--{given[0]}")
        raise click.UsageError(f"{flag} goes with {direction}")


def _tell(output: Output, converted: verbs.convert.Converted) -> None:
    output.answer(converted)
    output.notes(converted.notes)
    output.note_files(converted.out, kept=converted.kept_files)
    amount = f"{counted(converted.tensors, 'tensor')}, {counted(converted.coordinates, 'coordinate')}"
    output.note(f"converted to {converted.format}: {amount}, {human_bytes(converted.bytes)}")
    output.value(str(converted.out))
