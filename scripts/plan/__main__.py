"""Writes the tables and the picture of ``docs/plan.md``: ``python -m scripts.plan``; ``measure`` measures rates first.

Rates are in ``rates.json``, limits and machines in ``inputs.py``, the simulation is in ``schedule.py``.
"""

from __future__ import annotations

import sys

from scripts.plan.page import PAGE, PICTURE, picture, rendered


def main(arguments: list[str]) -> int:
    """Write the page."""
    if arguments == ["measure"]:
        from scripts.plan.measure import main as measure

        measure()
    elif arguments:
        print(f"usage: python -m scripts.plan [measure]\n\n{__doc__}", file=sys.stderr)
        return 2
    PAGE.write_text(rendered(PAGE.read_text()))
    PICTURE.write_text(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
