"""``scripts/calibrate``: draw pairs of updates that know nothing of each other, and print what their verdicts say."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from maskreg.analysis.evidence import STRIPED
from maskreg.analysis.verdict import Asked, Outcome, Start, verdict
from scripts.calibration.draws import INDEPENDENT, raised
from scripts.calibration.measure import figures_of_pair
from scripts.calibration.training import LIMITS, TRAINED

_KINDS = {**INDEPENDENT, **TRAINED, **LIMITS}
_POWER_DRAWS = 30
_EFFECTS = 0.01, 0.05, 0.2, 0.6

Result = tuple[Outcome, bool | None, bool | None, float | None]


def start_of(name: str) -> Start:
    """What is known of the start of such a pair: nothing where it was off the grid."""
    return "unknown" if "off the grid" in name else "yes"


def result_of(name: str, seed: int) -> Result:
    """The verdict on one draw; whether the intervals of headroom and ratio hold no difference; and the headroom.

    They belong to the null of rows and columns, which does not hold for draws off the grid; no null does.
    """
    figures = figures_of_pair(_KINDS[name](np.random.default_rng([seed, *name.encode()])))
    excess, start = figures.nulls[STRIPED], start_of(name)
    covers = [
        None if ends is None or start != "yes" else ends[0] <= truth <= ends[1]
        for ends, truth in ((excess.headroom_interval, 0.0), (excess.ratio_interval, 1.0))
    ]
    headroom = None if excess.headroom_interval is None else excess.headroom
    return verdict(figures, asked=Asked(start=start)).outcome, covers[0], covers[1], headroom


def sees(seed: int) -> bool:
    """Whether an overlap that is 1 % higher within every exponent is called more, where every effect matters."""
    figures = figures_of_pair(raised(0.01)(np.random.default_rng([seed, 1])))
    return verdict(figures, asked=Asked(smallest=0.0, start="yes")).outcome is Outcome.MORE


def seen(headroom: float, seed: int) -> tuple[bool, bool]:
    """Whether an overlap that fills so much of the headroom is called more: with a start on the grid, and unknown."""
    figures = figures_of_pair(raised(headroom, of_room=True)(np.random.default_rng([seed, 2])))
    known, unknown = (verdict(figures, asked=Asked(start=start)).outcome for start in ("yes", "unknown"))
    return known is Outcome.MORE, unknown is Outcome.MORE


def _share(covers: list[bool]) -> str:
    return f"{100 * sum(covers) / len(covers):.1f} %" if covers else "-"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="scripts/calibrate", description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="of each kind; 1,000 by default")
    parser.add_argument(
        "--kind", choices=_KINDS, action="append", metavar="UPDATES", help="only these updates (repeatable)"
    )
    parser.add_argument("--jobs", type=int, default=None, help="processes; by default one per CPU")
    options = parser.parse_args()
    titles = "updates", "draws", "more", "less", "headroom covered", "ratio covered", "mean headroom"
    print(f"| {' | '.join(titles)} |\n|---|{'--:|' * (len(titles) - 1)}")
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.kind or _KINDS:
            results = list(pool.map(partial(result_of, name), range(options.draws), chunksize=10))
            outcomes, by_headroom, by_ratio, headrooms = zip(*results, strict=True)
            counts, sizes = Counter(outcomes), [size for size in headrooms if size is not None]
            cells = [name, f"{options.draws:,}", str(counts[Outcome.MORE]), str(counts[Outcome.LESS])]
            cells += [_share([cover for cover in covers if cover is not None]) for covers in (by_headroom, by_ratio)]
            cells.append(f"{100 * sum(sizes) / len(sizes):+.2f} %" if sizes else "-")
            print("| " + " | ".join(cells) + " |", flush=True)
        if options.kind:
            return 0
        higher = sum(pool.map(sees, range(_POWER_DRAWS)))
        print("\n| headroom | called more, start known | start unknown |\n|---|--:|--:|")
        for effect in _EFFECTS:
            known, unknown = map(sum, zip(*pool.map(partial(seen, effect), range(_POWER_DRAWS)), strict=True))
            print(f"| {100 * effect:.0f} % | {known} of {_POWER_DRAWS} | {unknown} of {_POWER_DRAWS} |")
    print(
        f"\nAn overlap that is 1 % higher within every exponent (787 k coordinates, .37 x .25) is called more in "
        f"{higher} of {_POWER_DRAWS} draws, where every effect matters (`--smallest-effect 0`)."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
