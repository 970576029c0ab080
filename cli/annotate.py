"""``maskreg annotate``: change what people say about an artifact."""

from __future__ import annotations

import click

from maskreg.ref import Card, Ref, printable

from .command import Command
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
@click.option("--family", help="Model family, such as qwen3-8b.")
@click.option("--method", help="How the target was trained: opd, rlvr, sft or another word.")
@click.option("--license", help="SPDX identifier, such as apache-2.0.")
@click.option("--description", help="One paragraph for people.")
@click.option("--meta", type=PAIR, multiple=True, help="Run metadata; repeatable; an empty value removes the key.")
@click.pass_obj
def command(
    output: Output,
    ref: Ref,
    family: str | None,
    method: str | None,
    license: str | None,
    description: str | None,
    meta: tuple[tuple[str, str], ...],
) -> None:
    """Change what people say about an artifact.

    The artifact and its digest stay as they are.
    """
    if not meta and family is method is license is description is None:
        raise click.UsageError("nothing to change: give at least one of the options")
    # What is taken away may be anything: a card from elsewhere can hold what nobody may write here.
    given = {key: value for key, value in meta if value}
    Card(family or "", method or "", license or "", description or "", given).checked()
    from maskreg.registry.tags import annotate

    from .places import local, note_catalog

    here = local()
    entry = annotate(here, ref, family=family, method=method, license=license, description=description, meta=dict(meta))
    note_catalog(output, here)
    if output.json:
        output.document({"ref": str(entry.ref), "digest": entry.digest, "n": entry.n, "card": entry.card.to_json()})
        return
    for key, value in entry.card.to_json().items():
        rows = value.items() if isinstance(value, dict) else [(key, value)]
        for name, text in rows:
            output.data(printable(f"{name:<12} {text}"))
