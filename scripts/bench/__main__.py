"""Measures the delta codec beside its peers, and the installed commands beside cp and a bare loop; judges by ratios.

  scripts/bench/run --quick                        does everything work? (a minute)
  scripts/bench/run --pair SOURCE TARGET --page docs
  scripts/bench/run codec                          only one of codec, commands, threads and start
  scripts/bench/run page docs/benchmarks.json      write the page again

CPU seconds are of the best repetition, which other load affects least; medians are beside them. What is compared
runs in turns. GB = 10^9 bytes of one checkpoint.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import chain
from pathlib import Path
from tempfile import gettempdir
from typing import Any

SECTIONS = ("codec", "commands", "threads", "start")
JSON = "benchmarks.json"


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default all); or: page FILE"
    )
    parser.add_argument("--quick", action="store_true", help="tiny data, once: to see that everything works")
    parser.add_argument("--pair", nargs=2, type=Path, action="append", default=[], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--gigabytes", type=float, nargs="+", help="sizes of generated checkpoints (default 1.2 and 4)")
    parser.add_argument("--rounds", type=int, default=0, help="repetitions (default 5, of large checkpoints 3)")
    parser.add_argument("--dir", type=Path, help="work folder (default: a temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--page", type=Path, metavar="DIR", help=f"write {JSON} and the page into DIR")
    options = parser.parse_args()
    if options.what[:1] == ["page"]:
        if len(options.what) != 2:
            parser.error("page takes one file")
    elif unknown := set(options.what) - set(SECTIONS):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join((*SECTIONS, 'page'))}")
    for path in (options.json and options.json.parent, options.page):
        if path and not path.is_dir():
            parser.error(f"{path}: no such folder")
    return options


def measure(options: argparse.Namespace) -> None:
    """Measure the selected sections, print the table, and write what was asked for."""
    from maskreg.codec import DEFAULT_CODEC
    from scripts.bench import commands, figures, page
    from scripts.bench.codec import measure as measure_codecs
    from scripts.bench.conditions import Watch
    from scripts.bench.pairs import SPECS, generated, given

    quick, chosen = options.quick, options.what or SECTIONS
    sizes = options.gigabytes or ([0.01, 0.02] if quick else [1.2, 4.0])
    rounds, long_rounds = options.rounds or (1 if quick else 5), options.rounds or (1 if quick else 3)
    watch = Watch(os.getloadavg()[0])
    parts: dict[str, Any] = {}
    if "codec" in chosen:
        made = (generated(spec, 384 if quick else 1536) for spec in SPECS)  # one in memory at a time
        pairs = chain(made, (given(*sides) for sides in options.pair))
        parts["pairs"] = tuple(_said(measure_codecs(pair, rounds, 0 if quick else 50_000_000)) for pair in pairs)
    if "commands" in chosen:
        parts["sizes"] = tuple(_said(commands.measure(size, options.dir, long_rounds)) for size in sizes)
    if "threads" in chosen:
        parts["threads"] = commands.threads(sizes[0], options.dir, long_rounds)
    if "start" in chosen:
        names = tuple(page.START_BARS) if quick else tuple(commands.STARTS)
        parts["interpreter"], parts["starts"] = commands.starts(names, options.dir, rounds)
    conditions = watch.conditions(options.dir or Path(gettempdir()), quick=quick)
    run = figures.Run(1, conditions, DEFAULT_CODEC, **parts)
    print(page.text(run), flush=True)
    if conditions.busy:
        print("warning: the machine was busy; these figures are no reference", file=sys.stderr)
    for path in (options.json, options.page and options.page / JSON):
        if path:
            figures.dump(run, path)
    if options.page:
        page.write(options.page / JSON)


def _said(measured: Any) -> Any:
    name = getattr(measured, "name", "") or f"extract and apply of {measured.gigabytes:g} GB"
    print(f"measured {name}", file=sys.stderr, flush=True)
    return measured


def main() -> None:
    """Measure, or write a page; report errors as the commands do."""
    options = parsed()
    from maskreg.errors import MaskregError

    try:
        if options.what[:1] == ["page"]:
            from scripts.bench import page

            page.write(Path(options.what[1]))
        else:
            measure(options)
    except MaskregError as error:
        raise SystemExit(f"error: {error}\n  {error.hint}") from None


if __name__ == "__main__":
    main()
