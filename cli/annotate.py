"""``maskreg annotate``: change the card of an artifact."""

from __future__ import annotations

import click

from maskreg.ref import Ref, printable

from .command import Command, workspace
from .output import Output
from .values import PAIR, REF


@click.command(
    cls=Command,
    example="""
    maskreg annotate qwen3-8b-opd --family qwen3-8b --license apache-2.0
    maskreg annotate qwen3-8b-opd --meta teacher=qwen3-32b --meta seed=17
    maskreg annotate qwen3-8b-opd --meta seed=
    """,
)
@click.argument("ref", type=REF)
@click.option("--remote", help="Change it on a remote, not in the local registry.")
@click.option("--family", help="Model family, such as qwen3-8b.")
@click.option("--method", help="How the target was trained: opd, rlvr, sft or another word.")
@click.option("--license", help="SPDX identifier, such as apache-2.0.")
@click.option("--description", help="One paragraph for people.")
@click.option("--meta", type=PAIR, multiple=True, help="Run metadata; repeatable. An empty value removes the key.")
@click.pass_obj
def command(
    output: Output,
    ref: Ref,
    remote: str | None,
    family: str | None,
    method: str | None,
    license: str | None,
    description: str | None,
    meta: tuple[tuple[str, str], ...],
) -> None:
    """Change the card of an artifact.

    Family, method, license, description and run metadata. The artifact and its digest stay the same.
    """
    from maskreg.workspace.annotate import annotate

    annotated = annotate(
        ref,
        family=family,
        method=method,
        license=license,
        description=description,
        meta=dict(meta),
        remote=remote,
        workspace=workspace(output),
    )
    if output.json:
        output.document(annotated.to_json())
        return
    for key, value in annotated.card.to_json().items():
        rows = value.items() if isinstance(value, dict) else [(key, value)]
        for name, text in rows:
            output.data(printable(f"{name:<12} {text}"))
