"""Who vouches for tags, as a table; and the exit code that says whether somebody vouches for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import click

from maskreg.errors import DataError, MaskregError
from maskreg.words import counted

from .output import Output
from .table import table

if TYPE_CHECKING:
    from maskreg.registry.audit.verify import Damage
    from maskreg.registry.signing import Signatures, SignedTag

NOT_SIGNED = 1
"""Exit code when a tag is in a project that has no key."""


def show_signatures(output: Output, report: Signatures) -> None:
    """Print which key vouches for each tag, and end the command with 1 when some are unsigned.

    Raises:
        DataError: no trusted key vouches for a tag of a signed project.
    """
    if output.json:
        # The document says what is wrong; a second one would not parse beside it.
        output.reported = True
        output.document(report.to_json())
    else:
        for line in table([_row(tag) for tag in report.tags], right=4) if report.tags else ():
            output.data(line)
        for tag in report.wrong:
            output.damage(tag.fault, tag.error)
        states = Counter(tag.state for tag in report.tags)
        output.note(", ".join(f"{counted(n, 'tag')} {state}" for state, n in states.items()) or "no tags")
    if report.wrong:
        tags = counted(len(report.wrong), "tag")
        raise problems(f"no trusted key vouches for {tags} in {report.registry}", report.wrong)
    if report.unsigned:
        click.get_current_context().exit(NOT_SIGNED)


def problems(message: str, wrong: Sequence[Damage | SignedTag]) -> MaskregError:
    """The error about damage that was printed; about one, or as JSON, with its next step."""
    error = wrong[0].error
    if error is None or (len(wrong) > 1 and not click.get_current_context().ensure_object(Output).json):
        return DataError(message, hint="see each next step above")
    # The table has the next step under the class of the damage.
    same = copy(error)
    same.message = message
    return same


def _row(tag: SignedTag) -> tuple[str, str, str, str]:
    if tag.key is None or tag.since is None:
        return str(tag.ref), tag.state, "-", "-"
    return str(tag.ref), tag.state, tag.key.short, f"since {tag.since:%Y-%m-%d %H:%M}"
