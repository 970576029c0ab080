"""What ``extract --each`` does: every checkpoint of a run, and a table of what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import is_pattern
from maskreg.words import counted, human_bytes, percent

from .command import workspace
from .output import Output, told
from .table import Row, table

if TYPE_CHECKING:
    from maskreg.workspace.sweep import Sweep, Swept


def pair_of(checkpoints: Sequence[str]) -> tuple[str, str]:
    """The source and the target of one extraction.

    Raises:
        click.UsageError: fewer or more than two.
    """
    if len(checkpoints) < 2:
        raise click.UsageError(f"Missing argument '{('SOURCE', 'TARGET')[len(checkpoints)]}'.")
    if len(checkpoints) > 2:
        extra = " ".join(checkpoints[2:])
        raise click.UsageError(
            f"Got unexpected extra argument ({extra}); for every checkpoint of a run: --each PATTERN"
        )
    return checkpoints[0], checkpoints[1]


def sweep_run(output: Output, pattern: str, checkpoints: Sequence[str], *, onto: str, **options: Any) -> None:
    """Extract from every checkpoint that a pattern matches, and print a table.

    Args:
        output: the output of the process.
        pattern: the checkpoints.
        checkpoints: the arguments: the source, or nothing.
        onto: ``source`` or ``previous``.
        options: as :func:`maskreg.sweep` takes them.

    Raises:
        click.UsageError: more than a source, or a source of one checkpoint that is compared with those before it.
        MaskregError: what went wrong with the first checkpoint that failed, after the table.
    """
    from maskreg.workspace.sweep import sweep

    if len(checkpoints) > 1:
        raise click.UsageError("with --each there is a SOURCE and no TARGET; quote the pattern: --each 'out/step-*'")
    source = checkpoints[0] if checkpoints else None
    if source is not None and onto == "previous" and not is_pattern(pattern):
        # What a shell makes of a pattern of two checkpoints that was not quoted, where no SOURCE was meant.
        raise click.UsageError(
            f"--each {pattern} is one checkpoint, so none is before it, and {source} would be the SOURCE; "
            "quote the pattern: --each 'out/step-*'; for these two alone leave out --onto"
        )
    output.note_slow_kernels()
    with output.progress() as progress:
        result = sweep(
            pattern,
            options.pop("name"),
            source=source,
            onto=onto,  # type: ignore[arg-type] # click has checked it
            **options,
            progress=progress,
            workspace=workspace(output),
        )
    _print(output, result)
    if result.failed:
        output.reported = output.json
        first = result.failed[0]
        assert first.error is not None
        others = f" ({counted(len(result.failed), 'checkpoint')} failed)" if len(result.failed) > 1 else ""
        first.error.message = f"{first.ref}: {first.error.message}{others}"
        first.error.args = (first.error.message,)
        raise first.error


def _print(output: Output, result: Sweep) -> None:
    if output.json:
        output.document(result.to_json())
        return
    if output.quiet:
        for row in result.checkpoints:
            if row.digest is not None:
                output.data(str(row.ref.pinned(row.digest)))
        return
    if not result.checkpoints:
        output.note("there is one checkpoint, and nothing yet to compare it with")
        return
    titles: Row = ("name", "checkpoint", "onto", "", "moved", "of the FFN", "size")
    output.data("\n".join(table([titles, *map(_cells, result.checkpoints)], right=4)))
    # The first is the error of the command.
    for row in result.failed[1:]:
        assert row.error is not None
        output.note(told(f"{row.ref}: {row.error.message}", row.error))


def _cells(row: Swept) -> Row:
    size = "" if row.size is None else human_bytes(row.size)
    shares = ["" if share is None else percent(share) for share in (row.density, row.ffn_density)]
    return str(row.ref), row.checkpoint, row.onto, row.status, *shares, size
