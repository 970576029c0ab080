"""``maskreg merge`` beside mergekit: seconds, CPU seconds, peak memory, and in how many coordinates they differ.

Both merge the same three targets of one source into a checkpoint, on the same machine in the same run; mergekit in an
environment of its own, in fp32 with bf16 at the end. maskreg reads the source and three artifacts, which were
extracted before; mergekit reads four checkpoints.

Where sizes of updates tie at the edge of what is kept, the two may keep different ones: mergekit's sort is not stable,
maskreg takes the first. Such coordinates are counted as different.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench import process_memory
from scripts.bench.commands import MASKREG, generate_models, size_of
from scripts.bench.folders import cache_folder, work_folder

MERGEKIT = "mergekit==0.1.5"

NAMES = ("a", "b", "c")

Values = dict[str, Any]

CONFIG = '{"architectures": ["GeneratedForCausalLM"], "model_type": "llama"}'
"""An architecture that mergekit does not know, so that it takes the tensors that there are."""

METHODS: dict[str, tuple[Values, str, Values]] = {
    "linear": ({}, "linear", {"weight": 1.0}),
    "task-arithmetic": ({}, "task_arithmetic", {"weight": 1.0}),
    "ties": ({"density": 0.2}, "", {}),
    "ties-per-tensor": ({"density": 0.5}, "ties", {"weight": 1.0, "density": 0.5}),
    "breadcrumbs": ({"density": 0.5, "gamma": 0.01}, "breadcrumbs", {"weight": 1.0, "density": 0.5, "gamma": 0.01}),
    "dare": ({"density": 0.5, "rescale": "l1"}, "dare_linear", {"weight": 1.0, "density": 0.5}),
    "model-stock": ({}, "model_stock", {}),
    "ram": ({}, "ram", {}),
}
"""By method of maskreg: its settings, mergekit's name of the same, and its parameters; empty where it has none."""

DRAWN = {"dare"}
"""Methods whose random words differ, so that results cannot be compared."""


@dataclass(frozen=True)
class Cost:
    """What a program took.

    Attributes:
        seconds: wall time.
        cpu: CPU seconds of all threads.
        peak_rss: peak resident set, in bytes.
    """

    seconds: float
    cpu: float
    peak_rss: int


@dataclass(frozen=True)
class Row:
    """One method at one size.

    Attributes:
        gigabytes: of each checkpoint.
        method: maskreg's name of it.
        maskreg: what maskreg took.
        mergekit: what mergekit took; None where it does not have the method, or was not run.
        coordinates: of the model.
        differing: coordinates whose values differ between the two results; None where they cannot be compared.
        largest: the largest difference.
    """

    gigabytes: float
    method: str
    maskreg: Cost
    mergekit: Cost | None
    coordinates: int
    differing: int | None
    largest: float | None


def run_all(sizes: Sequence[float], parent: Path | None, methods: Sequence[str], program: Path | None) -> list[Row]:
    """Measure every method at every size, in temporary folders.

    Args:
        sizes: of each checkpoint, in 10^9 bytes.
        parent: where the temporary folders go.
        methods: maskreg's names.
        program: Python of an environment with mergekit; None to measure maskreg alone.

    Raises:
        SystemExit: a command failed.
    """
    rows = []
    for gigabytes in sizes:
        with work_folder(parent) as folder:
            rows += bench(folder, gigabytes, methods, program)
    return rows


def bench(folder: Path, gigabytes: float, methods: Sequence[str], program: Path | None) -> list[Row]:
    """Generate, extract and merge at one size, in an empty ``folder``."""
    generate_models(folder, gigabytes, NAMES)
    for name in ("source", *NAMES):
        (folder / name / "config.json").write_text(CONFIG)
    for name in NAMES:
        _measured(folder, [MASKREG, "extract", folder / "source", folder / name, "--name", name, "-q"])
    rows = []
    for method in methods:
        settings, peer, _ = METHODS[method]
        options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        line: list[str | Path] = [MASKREG, "merge", *NAMES, "--method", method, "--source", folder / "source", "-q"]
        ours = _measured(folder, [*line, "-o", folder / "out", *options])
        theirs = _mergekit(folder, method, program) if program is not None and peer else None
        comparable = theirs is not None and method not in DRAWN
        differing, largest = _difference(folder / "out", folder / "theirs") if comparable else (None, None)
        rows.append(Row(gigabytes, method, ours, theirs, size_of(folder / "out") // 2, differing, largest))
        for name in ("out", "theirs"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return rows


def mergekit_python(cache: Path | None) -> Path:
    """Python of an environment that has mergekit alone; made once, in the user's cache folder by default."""
    folder = cache_folder(cache) / "mergekit"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", MERGEKIT], check=True)
        (folder / "done").touch()
    return python


def table(rows: Sequence[Row]) -> str:
    """The figures as text."""
    lines = [
        f"{'GB':>5}  {'method':<17}{'':<9}{'peak RSS':>10}{'seconds':>9}{'CPU s':>8}  other values than mergekit's",
    ]
    for row in rows:
        lines.append(_line(f"{row.gigabytes:>5g}  {row.method:<17}", "maskreg", row.maskreg))
        if row.differing is not None:
            share = row.differing / row.coordinates
            lines[-1] += f"  {row.differing:,} ({100 * share:.4f} %), by {row.largest:.1e} at most"
        if row.mergekit is not None:
            lines.append(_line(" " * 24, "mergekit", row.mergekit))
            faster, smaller = row.mergekit.seconds / row.maskreg.seconds, row.mergekit.peak_rss / row.maskreg.peak_rss
            lines[-1] += f"  {faster:.1f} times the time, {smaller:.1f} times the memory"
    return "\n".join(lines)


def _line(head: str, name: str, cost: Cost) -> str:
    return f"{head}{name:<9}{cost.peak_rss / 1e6:>7.0f} MB{cost.seconds:>9.2f}{cost.cpu:>8.2f}"


def _mergekit(folder: Path, method: str, program: Path) -> Cost:
    _, name, parameters = METHODS[method]
    recipe = {
        "merge_method": name,
        "models": [{"model": str(folder / own), "parameters": parameters} for own in NAMES],
        "dtype": "float32",
        "out_dtype": "bfloat16",
        **({} if name == "linear" else {"base_model": str(folder / "source")}),
        **({"parameters": {"normalize": False}} if name in ("task_arithmetic", "breadcrumbs", "dare_linear") else {}),
    }
    # JSON is YAML.
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    line: list[str | Path] = [
        "-m",
        "mergekit.scripts.run_yaml",
        folder / "recipe.yaml",
        folder / "theirs",
        "--allow-crimes",
    ]
    return _measured(folder, [program, *line], {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"})


def _measured(folder: Path, line: Sequence[str | Path], more: dict[str, str] | None = None) -> Cost:
    own = {"HOME": "", "MASKREG_HOME": "home", "MASKREG_CONFIG": "config.toml"}
    env = {**os.environ, **{name: str(folder / path) for name, path in own.items()}, **(more or {})}
    start = time.perf_counter()
    with (folder / "stdout").open("wb") as out:
        usage = process_memory.usage(line, out, folder, env)
    seconds = time.perf_counter() - start
    if usage.code:
        raise SystemExit(f"{' '.join(map(str, line))} failed with exit code {usage.code}")
    return Cost(seconds, usage.cpu, usage.peak)


def _difference(left: Path, right: Path) -> tuple[int, float]:
    """Coordinates whose values differ, and the largest difference."""
    import numpy as np

    from maskreg.checkpoint import open_checkpoint
    from maskreg.tensors.blocks import blocks_of
    from maskreg.tensors.cast import to_fp32

    differing, most = 0, 0.0
    with open_checkpoint(left) as ours, open_checkpoint(right) as theirs:
        for name, info in ours.tensors.items():
            for span in blocks_of(info.numel):
                left_values, right_values = (to_fp32(side.read(name, *span)) for side in (ours, theirs))
                differing += int(np.count_nonzero(left_values != right_values))
                most = max(most, float(np.abs(left_values - right_values).max()))
    return differing, most


def main(args: list[str]) -> None:
    """Measure from a command line: scripts/bench/run merge --help."""
    import argparse
    from dataclasses import asdict

    from scripts.bench.arguments import positive

    parser = argparse.ArgumentParser(
        prog="scripts/bench/run merge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=positive, nargs="+", default=[1.0, 4.0], help="of a checkpoint (1 and 4)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="(default: all)")
    parser.add_argument("--dir", type=Path, help="work folder (default: a temporary folder)")
    parser.add_argument("--mergekit", type=Path, metavar="PYTHON", help=f"Python of an environment with {MERGEKIT}")
    parser.add_argument("--alone", action="store_true", help="without mergekit, which is installed otherwise")
    parser.add_argument("--cache", type=Path, help="where to install mergekit (default: the user's cache folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    options = parser.parse_args(args)
    program = None if options.alone else options.mergekit or mergekit_python(options.cache)
    rows = run_all(options.gigabytes, options.dir, options.methods, program)
    print(table(rows), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
