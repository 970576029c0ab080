"""A sweep of many checkpoints: what each of its commands takes, and what going on after a kill costs.

A run is generated: a random walk of bf16 noise from a source. Every checkpoint is extracted with `extract --each`, and
beside it one with plain `extract`; the same is done again, which must find nothing to do; in a fresh home it is killed
in the middle and started again, which must give the same digests. Then the masks are surveyed, and a page is made of
all of them and of ten, whose pairs it compares. The table in docs/how-to/sweep.md is what 200 checkpoints gave.

    scripts/bench/run sweep --checkpoints 200 --dir /dev/shm
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.arguments import count
from scripts.bench.pairs import to_bf16
from scripts.bench.process_memory import usage
from scripts.bench.processes import environment
from tests.checkpoints import make_checkpoint

MASKREG = Path(sys.executable).with_name("maskreg")

NAME = "bench/run"
PATTERN = "run/step-*"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and exit 1 when a sweep that was killed gives something else."""
    parser = argparse.ArgumentParser(
        "scripts/bench/run sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoints", type=count, default=200)
    parser.add_argument("--layers", type=count, default=12, help="of each checkpoint, half a megabyte each")
    parser.add_argument("--dir", help="folder to work in")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="maskreg-sweep-", dir=options.dir) as folder:
        figures = measured(Path(folder), options.checkpoints, options.layers)
    print(json.dumps(figures, indent=2))
    return 0 if figures["same digests after a kill"] and not figures["extracted again"] else 1


def measured(folder: Path, checkpoints: int, layers: int) -> dict[str, Any]:
    """CPU seconds and peak memory of every command, and whether a sweep that was killed ends as any other."""
    generate(folder, checkpoints, layers)
    each = ["extract", "base", "--each", PATTERN, "--name", NAME]
    took: dict[str, dict[str, float]] = {}
    _, took["extract of one"] = _run(folder, "home", ["extract", "base", "run/step-1", "--name", "bench/one"])
    whole, took["extract --each"] = _run(folder, "home", each)
    again, took["the same again"] = _run(folder, "home", each)
    _, took["extract --each --onto previous"] = _run(folder, "home", [*each[:-1], "bench/steps", "--onto", "previous"])
    _kill_in_the_middle(folder, each, checkpoints // 2)
    resumed, took["the rest after a kill"] = _run(folder, "killed", each)
    survey, took["survey"] = _run(folder, "home", ["survey", f"{NAME}:*"])
    page = ["report", f"{NAME}:step-{checkpoints}", "-o"]
    _, took["report on all"] = _run(folder, "home", [*page, "all.html", "--against", f"{NAME}:*"])
    _, took["report on ten"] = _run(folder, "home", [*page, "ten.html", "--against", f"{NAME}:step-[1-9]"])
    return {
        "checkpoints": checkpoints,
        "page MB": round((folder / "all.html").stat().st_size / 1e6, 2),
        "parameters": survey["numel"],
        "pairs": checkpoints * (checkpoints - 1) // 2,
        "commands": took,
        "extracted again": _count(again, "new"),
        "kept after a kill": _count(resumed, "kept"),
        "same digests after a kill": _digests(resumed) == _digests(whole),
    }


def generate(folder: Path, checkpoints: int, layers: int) -> None:
    """Write ``base``, and ``run/step-1`` and so on, each a step of noise from the one before."""
    rng = np.random.default_rng(0)
    values = {
        f"model.layers.{layer}.{name}.weight": np.float32(0.02) * rng.standard_normal(shape, np.float32)
        for layer in range(layers)
        for name, shape in (
            ("self_attn.q_proj", (128, 128)),
            ("self_attn.o_proj", (128, 128)),
            ("mlp.up_proj", (384, 128)),
            ("mlp.gate_proj", (384, 128)),
            ("mlp.down_proj", (128, 384)),
        )
    }
    for number in range(checkpoints + 1):
        out = folder / (f"run/step-{number}" if number else "base")
        make_checkpoint(out, {name: ("BF16", to_bf16(own)) for name, own in values.items()})
        for own in values.values():
            own += np.float32(2e-6) * rng.standard_normal(own.shape, np.float32)


def _run(folder: Path, home: str, words: Sequence[str]) -> tuple[Any, dict[str, float]]:
    said = folder / "said.json"
    with said.open("wb") as stdout:
        used = usage([MASKREG, *words, "--json"], stdout, folder, environment(folder / home))
    if used.code:
        raise SystemExit(f"{words[0]} ended with {used.code}: {said.read_text()}")
    return json.loads(said.read_text()), {"CPU s": round(used.cpu, 2), "peak MB": round(used.peak / 1e6)}


def _kill_in_the_middle(folder: Path, words: Sequence[str], after: int) -> None:
    """Kill a sweep once it has extracted ``after`` checkpoints."""
    artifacts = folder / "killed/registry/artifacts/sha256"
    process = subprocess.Popen(
        [MASKREG, *words], cwd=folder, env=environment(folder / "killed"),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None and (not artifacts.is_dir() or len(list(artifacts.iterdir())) < after):
        time.sleep(0.01)
    process.kill()
    process.wait()


def _count(sweep: Any, status: str) -> int:
    return sum(row["status"] == status for row in sweep["checkpoints"])


def _digests(sweep: Any) -> list[str]:
    return [row["digest"] for row in sweep["checkpoints"]]


if __name__ == "__main__":
    sys.exit(main())
