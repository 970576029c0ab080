"""What a figure or word means, for ``--explain``."""

from __future__ import annotations

from .layout import paragraph
from .output import Output


def explanation(output: Output, name: str, command: str) -> None:
    """Print the glossary's entry.

    Args:
        output: where to.
        name: the figure or word, as people typed it.
        command: the command that was used, for hints.

    Raises:
        UsageError: it is not in the glossary.
    """
    from maskreg.analysis.glossary import explain

    first, *others = explain(name, command)
    if not output.json:
        for entry in (first, *others):
            for text in (f"{entry.name}: {entry.definition}", f"source: {entry.source}"):
                output.data("\n".join(paragraph(text, indent="  ")))
        return
    definition = "; ".join([first.definition, *(f"{entry.name}: {entry.definition}" for entry in others)])
    source = "; ".join(dict.fromkeys(entry.source for entry in (first, *others)))
    output.document({"figure": first.name, "definition": definition, "source": source})
