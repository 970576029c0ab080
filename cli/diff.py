"""``maskreg diff``: what changed between two artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import Ref
from maskreg.words import counted, percent, whole

from .command import Command, workspace
from .output import Output
from .table import table
from .values import REF, selecting

if TYPE_CHECKING:
    from maskreg.workspace.verbs.diff import Change, Difference


@click.command(
    cls=Command,
    example="""
    maskreg diff qwen3-8b-opd:v1 qwen3-8b-opd:v2
    maskreg diff qwen3-8b-opd:v1 qwen3-8b-opd:v2 --role ffn --layers 0-11
    maskreg diff qwen3-8b-opd@sha256:4be0 qwen3-8b-opd --json
    """,
)
@click.argument("a", type=REF)
@click.argument("b", type=REF)
@selecting
@click.pass_obj
def command(output: Output, /, a: Ref, b: Ref, **options: Any) -> None:
    """List what changed from artifact A to artifact B.

    Manifest and card, source and target, tensors that were added, removed or have another shape or dtype, density by
    role, and how many coordinates the masks share; of the tensors that --role and --layers choose. How much of that
    is chance says `compare`.
    """
    from maskreg.workspace.verbs.diff import diff

    with output.progress() as progress:
        difference = diff(a, b, **options, progress=progress, workspace=workspace(output))
    if output.printed(difference):
        return
    for line in _lines(difference):
        output.data(line)
    output.notes(difference.notes)


def _lines(difference: Difference) -> list[str]:
    left, right = difference.digests
    lines = [f"A  {difference.a}  {left.short}", f"B  {difference.b}  {right.short}"]
    if left == right:
        lines.append("the same artifact")
    sides = [
        f"{'same' if same else 'another'} {side}"
        for side, same in (("source", difference.same_source), ("target", difference.same_target))
    ]
    lines.append(", ".join(sides))
    if difference.selection:
        lines.append(f"of tensors, only what {difference.selection} selects")
    # One value below the other, so that roots and descriptions fit narrow terminals.
    for change in (*difference.fields, *difference.changed):
        lines += [change.name, f"  A  {_text(change.name, change.a)}", f"  B  {_text(change.name, change.b)}"]
    for word, names in (("added", difference.added), ("removed", difference.removed)):
        if names:
            lines += [f"{word}: {counted(len(names), 'tensor')}", *(f"  {name}" for name in names)]
    lines += ["density", *(f"  {line}" for line in table(_densities(difference.roles)))]
    if difference.masks is not None:
        masks = difference.masks
        rows = [("only A", masks.only_a), ("only B", masks.only_b), ("both", masks.both)]
        lines += ["moved coordinates", *(f"  {line}" for line in table((name, whole(count)) for name, count in rows))]
    return lines


def _densities(roles: tuple[Change, ...]) -> list[tuple[str, ...]]:
    shares = [(role.name, role.a, role.b) for role in roles]
    rows = [(name, *(percent(x) if isinstance(x, float) else "-" for x in values)) for name, *values in shares]
    return [("role", "A", "B"), *rows]


def _text(name: str, value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    # In bytes: two sizes that differ may be the same number of KiB.
    return counted(round(value), "byte") if name == "size" else whole(value)
