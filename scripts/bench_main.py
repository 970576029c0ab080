"""Measures maskreg: its delta codec beside others, its commands beside cp and sha256sum, its
baselines, and training on a mask.

views:
  codec     bits per parameter and speed of the delta codec and of its peers, beside the entropy limit, on generated
            pairs of checkpoints, on those of --pair and on that of --real
  commands  extract and apply of generated checkpoints: memory, speed and size of what they store
  compare   counting what two generated masks share: speed beside memcpy, and memory
  baselines coordinates a second that one core draws or ranks, source reading included
  retrain   AdamW on a mask beside PyTorch's on everything: time of a step, and memory
  all       all of them; the default, unless --gigabytes alone asks for the commands

The limit knows no more of a weight than its exponent in the source; a codec that sees rows, columns and low rank too
may end below it. Sizes are exact. Speeds are bytes of one checkpoint (GB = 10^9 bytes) a second: with one thread of its
CPU time, so that others on the machine matter less; with more threads of the wall's clock, so leave the machine alone.

  scripts/bench codec --threads 1 2 --pair base tuned
  scripts/bench codec --generated --real --plots docs
  scripts/bench commands --gigabytes 1 2 4
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bench_baselines
import bench_codec
import bench_commands
import bench_compare
import bench_pairs

import maskreg
from maskreg.errors import MaskregError

VIEWS = ("all", "codec", "commands", "compare", "baselines", "retrain")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("view", nargs="?", choices=VIEWS, help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    codec = parser.add_argument_group("codec")
    codec.add_argument("--pair", nargs=2, action="append", default=[], metavar=("SOURCE", "TARGET"), help="checkpoints")
    codec.add_argument("--generated", action="store_true", help="the generated pairs; the default without other pairs")
    codec.add_argument("--real", action="store_true", help="distil SmolLM2-135M and measure it (made once, kept)")
    codec.add_argument("--steps", type=count, default=30, help="of that distillation, 13 s each or so (default 30)")
    codec.add_argument("--rate", type=positive, default=1e-6, help="of learning in that distillation (default 1e-6)")
    codec.add_argument("--cache", type=Path, help="where that pair is kept (default: the user's cache folder)")
    codec.add_argument("--threads", type=count, nargs="+", default=[1, 2], help="of codecs and steps (default 1 2)")
    codec.add_argument("--repeat", type=count, default=3, help="times each is run at most; the best counts (default 3)")
    codec.add_argument(
        "--hidden", type=count, default=1536, help="width of generated models (default 1536: 38 M params)"
    )
    codec.add_argument("--seed", type=int, default=0, help="of generated pairs (default 0)")
    codec.add_argument("--plots", type=Path, metavar="DIR", help="draw codec-size.svg and codec-speed.svg there")
    commands = parser.add_argument_group("commands, baselines")
    commands.add_argument(
        "--gigabytes", type=positive, nargs="+", help="sizes of a checkpoint (default 4; for baselines 0.5)"
    )
    commands.add_argument("--dir", type=Path, help="where to work (default: a temporary folder)")
    compare = parser.add_argument_group("compare")
    compare.add_argument("--coordinates", type=count, default=10**9, help="of each mask (default 10^9)")
    retrain = parser.add_argument_group("retrain")
    retrain.add_argument("--width", type=count, default=2048, help="of its layers (default 2048)")
    retrain.add_argument(
        "--densities",
        type=positive,
        nargs="+",
        default=[0.01, 0.25, 0.48, 1.0],
        help="of masks",
    )
    retrain.add_argument("--layers", type=count, default=12, help="how many (default 12)")
    options = parser.parse_args()
    options.view = options.view or ("commands" if options.gigabytes else "all")
    return options


def pairs(options: argparse.Namespace) -> Iterator[bench_pairs.CodecPair]:
    """The pairs that were asked for, one in memory at a time."""
    if options.generated or options.view == "all" or not (options.pair or options.real):
        for recipe in bench_pairs.RECIPES:
            yield bench_pairs.generated(recipe, options.hidden, options.seed)
    for source, target in options.pair:
        yield bench_pairs.given(source, target)
    if options.real:
        source, target = needed("bench_real").pair(options.cache, options.steps, options.rate, say)
        how = f"{options.steps} steps of on-policy distillation at lr {options.rate:g}"
        what = f"SmolLM2-135M-Instruct (dequantized from Q4_1), {how}"
        yield bench_pairs.given(source, target, "SmolLM2 opd", what)


def needed(*names: str) -> Any:
    """The last of these modules; all of them can be imported.

    Raises:
        SystemExit: one cannot.
    """
    try:
        return [importlib.import_module(name) for name in names][-1]
    except ImportError as error:
        raise SystemExit(f"{error}\n  next: scripts/bench instead of its parts installs what it needs") from None


def say(text: str) -> None:
    """Tell what happens, on stderr."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "maskreg": maskreg.__version__,
    }


def positive(text: str) -> float:
    """An argument that is a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def count(text: str) -> int:
    """An argument that is a whole number above 0."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def main() -> None:
    """Measure what was asked for and print it; an error is told as the commands tell it."""
    try:
        measure(parsed())
    except MaskregError as error:
        raise SystemExit(f"error: {error}" + (f"\n  next: {error.hint}" if error.hint else "")) from None


def measure(options: argparse.Namespace) -> None:
    """Measure what was asked for and print it."""
    for place in (options.json and options.json.parent, options.dir and options.dir.parent):
        if place and not place.is_dir():
            raise SystemExit(f"{place}: no such folder")
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
    # Asked for before minutes of measuring, not after.
    plots = needed("matplotlib", "bench_plots") if options.plots else None
    if options.real:
        needed("accelerate", "gguf", "bench_real")
    out: dict[str, Any] = {"machine": machine()}
    if options.view in ("all", "codec"):
        results = []
        for pair in pairs(options):
            results.append(bench_codec.bench(pair, options.threads, options.repeat, say))
            print(bench_codec.table(results[-1]), flush=True)
        out["pairs"] = [asdict(result) for result in results]
        if plots:
            plots.draw(results, options.plots)
    if options.view in ("all", "commands"):
        runs = bench_commands.run_all(options.gigabytes or [4.0], options.dir)
        print(bench_commands.table(runs), flush=True)
        out["runs"] = [asdict(run) for run in runs]
    if options.view in ("all", "compare"):
        compared = bench_compare.bench(options.coordinates, options.dir)
        print(bench_compare.table(compared), flush=True)
        out["compare"] = asdict(compared)
    if options.view in ("all", "baselines"):
        rows = bench_baselines.run_all(options.gigabytes or [0.5], options.dir, options.repeat)
        print(bench_baselines.table(rows), flush=True)
        out["baselines"] = [asdict(row) for row in rows]
    if options.view in ("all", "retrain"):
        import bench_retrain  # and torch with it, which other measurements of memory would count

        found = bench_retrain.bench(
            options.layers, options.width, options.densities, options.threads, options.repeat, say
        )
        print(bench_retrain.table(found), flush=True)
        out["retrain"] = asdict(found)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
