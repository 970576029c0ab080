"""Measures maskreg: its delta codec, its commands, its baselines, and training on a mask.

views:
  codec     bits per parameter and speed of the delta codec and its peers, beside the entropy limit, on generated pairs
            of checkpoints, those of --pair and that of --real
  commands  extract and apply on generated checkpoints: memory, speed, stored size, beside cp and sha256sum
  start     CPU seconds of commands that have almost nothing to do, the first and later ones in a fresh home
  retrain   AdamW on a mask beside PyTorch's AdamW on all coordinates: time of a step, and memory
  all       all of them; the default, unless --gigabytes alone selects commands
  bars      what must be reached, measured in one run, as a table: scripts/bench/run bars --help
  page      the page of docs that shows it, from its JSON: scripts/bench/run page FILE

The entropy limit knows only a weight's exponent in the source; a codec that also models rows, columns and low rank can
end below it. Sizes are exact. Speed is in bytes of one checkpoint (GB = 10^9 bytes) a second: of CPU time with one
thread, which other load affects less, and of wall time with more threads, so leave the machine alone then.

  scripts/bench/run codec --threads 1 2 --pair base tuned
  scripts/bench/run codec --generated --real --plots docs
  scripts/bench/run commands --gigabytes 1 2 4
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Views are imported when they run: the help needs no package.
from maskreg.errors import MaskregError, NotFoundError
from scripts.bench.arguments import count, positive
from scripts.bench.bars.command_line import COMMANDS as OTHERS

if TYPE_CHECKING:
    from scripts.bench.pairs import CodecPair


BARS = OTHERS
"""What has a command line of its own."""


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("view", nargs="?", choices=("all", *VIEWS, *BARS), help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    add_codec_options(parser.add_argument_group("codec"))
    group = parser.add_argument_group("commands, start")
    group.add_argument("--gigabytes", type=positive, nargs="+", help="sizes of a checkpoint (default 4)")
    group.add_argument("--dir", type=Path, help="work folder (default: a temporary folder)")
    group = parser.add_argument_group("start")
    group.add_argument("--runs", type=count, default=5, help="of each command after the first two (default 5)")
    group = parser.add_argument_group("retrain")
    group.add_argument("--layers", type=count, default=12, help="layers of the model (default 12)")
    group.add_argument("--width", type=count, default=2048, help="width of each layer (default 2048)")
    group.add_argument("--densities", type=positive, nargs="+", default=[0.01, 0.25, 0.48, 1.0], help="of masks")
    options = parser.parse_args()
    if options.view in BARS:
        parser.error(f"{options.view} comes first, before its own options: scripts/bench/run {options.view} --help")
    options.view = options.view or ("commands" if options.gigabytes else "all")
    return options


def add_codec_options(group: argparse._ArgumentGroup) -> None:
    """The options of the codec view, some of them shared with others."""
    group.add_argument("--pair", nargs=2, action="append", default=[], metavar=("SOURCE", "TARGET"), help="checkpoints")
    group.add_argument("--changed", action="append", default=[], help="a checkpoint: rows, zeros, factors and the like")
    group.add_argument("--generated", action="store_true", help="the generated pairs; the default without other pairs")
    group.add_argument("--real", action="store_true", help="distil SmolLM2-135M once, keep it, and measure it")
    group.add_argument("--steps", type=count, default=30, help="of that distillation, about 13 s each (default 30)")
    group.add_argument("--rate", type=positive, default=1e-6, help="learning rate of that distillation (default 1e-6)")
    group.add_argument("--cache", type=Path, help="where to keep that pair (default: the user's cache folder)")
    group.add_argument("--threads", type=count, nargs="+", default=[1, 2], help="of codecs and steps (default 1 2)")
    group.add_argument("--repeat", type=count, default=3, help="repetitions at most; the best counts (default 3)")
    group.add_argument(
        "--hidden", type=count, default=1536, help="width of generated models (default 1536: 38 M params)"
    )
    group.add_argument("--seed", type=int, default=0, help="of generated pairs (default 0)")
    group.add_argument("--plots", type=Path, metavar="DIR", help="draw codec-size.svg and codec-speed.svg in DIR")


def codec_pairs(options: argparse.Namespace) -> Iterator[CodecPair]:
    """The selected pairs, one in memory at a time."""
    from scripts.bench.pairs import SPECS, changed, generated, given

    if options.generated or options.view == "all" or not (options.pair or options.real or options.changed):
        for spec in SPECS:
            yield generated(spec, options.hidden, options.seed)
    for source in options.changed:
        yield from changed(source)
    for source, target in options.pair:
        yield given(source, target)
    if options.real:
        source, target = needed("scripts.bench.real").pair(options.cache, options.steps, options.rate, say)
        how = f"{options.steps} steps of on-policy distillation at lr {options.rate:g}"
        yield given(source, target, "SmolLM2 opd", f"SmolLM2-135M-Instruct (dequantized from Q4_1), {how}")


def needed(*names: str) -> Any:
    """Import these modules and return the last.

    Raises:
        SystemExit: one cannot be imported.
    """
    try:
        return [importlib.import_module(name) for name in names][-1]
    except ImportError as error:
        raise SystemExit(f"{error}\n  next: scripts/bench/run, which installs what the views need") from None


def say(text: str) -> None:
    """Print progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    import maskreg

    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "maskreg": maskreg.__version__,
    }


def measure_codec(options: argparse.Namespace) -> Any:
    """Every pair with every codec; draws plots if requested."""
    from scripts.bench import codec

    plots = needed("matplotlib", "scripts.bench.plots") if options.plots else None
    results = []
    for pair in codec_pairs(options):
        results.append(codec.bench(pair, options.threads, options.repeat, say))
        print(codec.table(results[-1]), flush=True)
    if plots:
        plots.draw(results, options.plots)
    return [asdict(result) for result in results]


def measure_commands(options: argparse.Namespace) -> Any:
    """Extract and apply at every size."""
    from scripts.bench import commands

    runs = commands.run_all(options.gigabytes or [4.0], options.dir)
    print(commands.table(runs), flush=True)
    return [asdict(run) for run in runs]


def measure_start(options: argparse.Namespace) -> Any:
    """Commands that have almost nothing to do."""
    from scripts.bench import start

    results = start.bench(options.dir, options.runs)
    print(start.table(results), flush=True)
    return [asdict(result) for result in results]


def measure_retrain(options: argparse.Namespace) -> Any:
    """Masked steps and training memory."""
    # Imports torch, whose memory the other views would count as theirs.
    from scripts.bench import retrain

    model = retrain.Model(options.layers, options.width)
    result = retrain.bench(model, options.densities, options.threads, options.repeat, say)
    print(retrain.table(result), flush=True)
    return asdict(result)


VIEWS: dict[str, tuple[str, Callable[[argparse.Namespace], Any]]] = {
    "codec": ("pairs", measure_codec),
    "commands": ("runs", measure_commands),
    "start": ("start", measure_start),
    "retrain": ("retrain", measure_retrain),
}
"""Every view: its key in the JSON, and its function."""


def measure(options: argparse.Namespace) -> None:
    """Run the selected views, print their tables and write the JSON."""
    for folder in (options.json and options.json.parent, options.dir and options.dir.parent):
        if folder and not folder.is_dir():
            raise NotFoundError(f"{folder}: no such folder", hint=f"mkdir -p {folder}")
    # Checked before minutes of measuring, not after.
    if options.plots:
        needed("matplotlib", "scripts.bench.plots")
        options.plots.mkdir(parents=True, exist_ok=True)
    if options.real:
        needed("accelerate", "gguf", "scripts.bench.real")
    out: dict[str, Any] = {"machine": machine()}
    for name, (key, view) in VIEWS.items():
        if options.view in ("all", name):
            out[key] = view(options)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


def main() -> None:
    """Measure; report errors as the commands do."""
    try:
        if sys.argv[1:2] and sys.argv[1] in BARS:
            BARS[sys.argv[1]](sys.argv[2:])
        else:
            measure(parsed())
    except MaskregError as error:
        from maskreg_cli.exits import failure
        from maskreg_cli.output import Output

        described = failure(error)
        Output().failure(described.message, described.hint)
        raise SystemExit(described.exit) from None


if __name__ == "__main__":
    main()
