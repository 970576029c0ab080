"""What a notebook shows of the results of use cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maskreg.reports.notebook import NamedArtifact


class Displayed:
    """An artifact that a notebook shows as a report does: its card, its figures and its heat map."""

    def _repr_html_(self: NamedArtifact) -> str:
        from maskreg.reports.notebook import artifact_html

        return artifact_html(self)
