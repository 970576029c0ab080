"""What a notebook shows of an artifact and of a comparison: the tables and pictures of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from maskreg.errors import ConfigError, MaskregError

if TYPE_CHECKING:
    from maskreg.analysis.comparison import PairOverlap
    from maskreg.analysis.pairwise import PairMatrix
    from maskreg.artifact.reader import Artifact
    from maskreg.ref import Card
    from maskreg.reports.pictures import Plot

MOST_PICTURES = 3
"""Maximum number of pairs whose overlap is drawn."""


class NamedArtifact(Protocol):
    """An artifact with its name and card."""

    @property
    def name(self) -> str:
        """Its ref, or its digest without one."""

    @property
    def artifact(self) -> Artifact:
        """Opened."""

    @property
    def card(self) -> Card:
        """What people say about it."""


def artifact_html(mask: NamedArtifact) -> str:
    """An artifact as a fragment of HTML: its card, its FFN ratios, and its density by layer and module.

    Everything that comes from artifacts is escaped. The fragment has no script, style sheet or link, so that what
    notebooks sanitize is left whole. Without the libraries of the ``report`` extra it says how to get them.
    """
    if instead := _without_libraries(f"{mask.name}, {mask.artifact.digest}"):
        return instead
    from maskreg.reports.modules import grid_of
    from maskreg.reports.page import density_plot

    plots, notes = [], []
    try:
        grid = grid_of(mask.artifact.tensors)
        plots = [density_plot(grid)] if grid.cells else []
    except MaskregError as error:
        # The tensors of an artifact on a remote may be out of reach; what is known is shown.
        notes.append(f"Density by layer is left out: {error.message}.")
    return _fragment(mask, (), plots, notes)


def matrix_html(matrix: PairMatrix) -> str:
    """Many masks as a fragment of HTML: what their pairs say together, and the heat map; as :func:`artifact_html`."""
    if instead := _without_libraries(matrix.sentence):
        return instead
    from maskreg.reports.page import matrix_plot

    return _fragment(None, (), [matrix_plot(matrix)], [matrix.sentence, matrix.terms])


def overlaps_html(pairs: Sequence[PairOverlap]) -> str:
    """Overlaps as a fragment of HTML: the verdict on each pair, its figures, and its bars; as :func:`artifact_html`."""
    if instead := _without_libraries("; ".join(pair.verdict.sentence for pair in pairs)):
        return instead
    from maskreg.reports.page import overlap_plot

    drawn = [pair for pair in pairs if pair.whole.counts.most][:MOST_PICTURES]
    plots = [overlap_plot(number, pair) for number, pair in enumerate(drawn, start=1)]
    notes = list(dict.fromkeys(note for pair in pairs for note in pair.notes))
    if len(drawn) < len(pairs):
        notes.append(f"The overlaps of the first {len(drawn)} pairs are drawn.")
    return _fragment(None, pairs, plots, notes)


def _fragment(
    mask: NamedArtifact | None, pairs: Sequence[PairOverlap], plots: Sequence[Plot], notes: Sequence[str]
) -> str:
    from maskreg.reports.drawing import SCREEN_DPI
    from maskreg.reports.page import address, card_of
    from maskreg.reports.pictures import png
    from maskreg.reports.templates import plain_label, render
    from maskreg.reports.theme import LIGHT

    values: dict[str, Any] = {"name": "", "digest": "", "manifest": None, "card": {}}
    if mask is not None:
        artifact = mask.artifact
        values = {
            "name": mask.name,
            "digest": artifact.digest,
            "manifest": artifact.manifest,
            "card": card_of(mask.card),
        }
    return render(
        "notebook.html.j2",
        **values,
        pairs=[(" and ".join(pair.names), pair) for pair in pairs],
        pictures=[{"address": address("image/png", png(plot, LIGHT, SCREEN_DPI)), "alt": plot.alt} for plot in plots],
        notes=notes,
        term=plain_label,
    )


def _without_libraries(text: str) -> str:
    """What is shown where a library of the extra is missing; empty where none is."""
    from maskreg.reports.theme import require_libraries

    try:
        require_libraries()
    except ConfigError as error:
        return f"<p>{escape(text)}</p><p><small>Figures and tables: <code>{escape(error.hint)}</code></small></p>"
    return ""
