"""Measures every bar in one run, prints the table, and writes the page.

  scripts/bench/run bars --quick                                       does everything work? (a minute)
  scripts/bench/run bars --pair SOURCE TARGET --one-step FOLDER --page docs
  scripts/bench/run page docs/benchmarks.json                          write the page and its pictures again

CPU seconds are those of the best repetition, which other load affects least; medians are beside them. What is compared
runs in turns. GB = 10^9 bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from maskreg.errors import NotFoundError
from scripts.bench.arguments import count
from scripts.bench.bars.sections import SECTIONS

JSON = "benchmarks.json"


def bars(args: list[str]) -> None:
    """The command line of ``bars``."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run bars", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny data, once: to see that everything works")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections (default all)")
    parser.add_argument(
        "--pair", nargs=2, type=Path, action="append", default=[], metavar=("SOURCE", "TARGET"), help="real checkpoints"
    )
    parser.add_argument(
        "--one-step", type=Path, metavar="FOLDER", help="with source and teacher: distil one step (a minute), keep it"
    )
    parser.add_argument("--smollm", action="store_true", help="distil SmolLM2-135M (10 minutes), keep, and measure it")
    parser.add_argument("--cache", type=Path, help="where trained pairs are kept (default: the user's cache folder)")
    parser.add_argument("--dir", type=Path, help="work folder (default: a temporary folder)")
    parser.add_argument("--rounds", type=count, default=0, help="repetitions (default 5, of large checkpoints 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--page", type=Path, metavar="DIR", help=f"write {JSON}, the page and its pictures into DIR")
    options = parser.parse_args(args)
    for path in (options.json and options.json.parent, options.page, options.dir and options.dir.parent):
        if path and not path.is_dir():
            raise NotFoundError(f"{path}: no such folder", hint=f"mkdir -p {path}")
    measure_bars(options)


def measure_bars(options: argparse.Namespace) -> None:
    """Measure, print the table and write what was asked for."""
    from scripts.bench.bars import figures
    from scripts.bench.bars.measuring import Options, measure, say
    from scripts.bench.bars.table import rows, text

    if options.page:
        # Imported before minutes of measuring, not after.
        from scripts.bench.bars import page
    run = measure(
        Options(
            sections=options.only,
            quick=options.quick,
            given=[(source, target) for source, target in options.pair],
            one_step=options.one_step,
            smollm=options.smollm,
            cache=options.cache,
            folder=options.dir,
            rounds=options.rounds,
        )
    )
    print(text(rows(run)), flush=True)
    if run.conditions.busy:
        say("warning: the machine was busy; these figures are no reference")
    for path in (options.json, options.page and options.page / JSON):
        if path:
            figures.dump(run, path)
    if options.page:
        page.write(options.page / JSON)


def write_page(args: list[str]) -> None:
    """Write the page of figures that were measured before, beside their file."""
    parser = argparse.ArgumentParser(prog="scripts/bench/run page", description="Write the page of a JSON file.")
    parser.add_argument("file", type=Path, help="what `bars` wrote; the page and its pictures are written beside it")
    file = parser.parse_args(args).file
    from scripts.bench.bars import page

    page.write(file)


COMMANDS = {"bars": bars, "page": write_page}
"""What the benchmark's command line hands over to."""
