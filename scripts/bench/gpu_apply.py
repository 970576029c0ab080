"""Measures apply_, both ways, and switch_ on a model on the GPU, checks included, beside a copy on the GPU.

Two updates of one generated model, of the density of on-policy distillation, are extracted and then applied in turn.
Wall times begin and end with the model on the GPU; the best repetition counts. Speeds are bytes of the model a second
(GB = 10^9 bytes), and ``of copy`` is their share of what a copy on the device reaches. ``crossed`` is what went over
the bus, coded bytes and all; ``leaves`` is hashing alone. With --device cpu, the same on the CPU, to try the script.

  python -m scripts.bench.gpu_apply --gigabytes 4 --json gpu.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from maskreg import apply_
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.flow.apply.in_memory import patch_
from maskreg.flow.extract.extraction import extract
from maskreg.live.memory import leaves_of
from maskreg.store.file import FileStore
from maskreg.tensors.bus import counted
from maskreg.update.route import switching
from scripts.bench.commands import make_models
from scripts.bench.gpu import UNAVAILABLE, gpu, settle


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N; cpu to try the script (default cuda)")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the model (default 4)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions; the best counts (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    return parser.parse_args()


def main() -> int:
    """Measure, print a table, and write JSON if requested."""
    options = parsed()
    device = torch.device("cpu") if options.device == "cpu" else gpu(options.device)
    if device is None:
        return UNAVAILABLE
    with tempfile.TemporaryDirectory() as name:
        rows = measured(Path(name), device, options.gigabytes, options.repeat)
    if options.json:
        options.json.write_text(json.dumps({"device": str(device), "rows": rows}, indent=1) + "\n")
    return 0


def measured(directory: Path, device: torch.device, gigabytes: float, repeat: int) -> list[dict[str, Any]]:
    """Every step on one model."""
    folders = [directory / name for name in ("source", "first", "second")]
    make_models(folders[0], folders[1:], gigabytes)
    source, *targets = (open_checkpoint(folder) for folder in folders)
    first, second = (
        Artifact.open(FileStore(directory), extract(source, target, directory, reversible=True).digest)
        for target in targets
    )
    state = loaded(source, device)
    size = sum(tensor.nbytes for tensor in state.values())
    copies = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    spans = [tensor.view(torch.int16).reshape(-1) for tensor in state.values()]

    def copy() -> None:
        for name, tensor in state.items():
            copies[name].copy_(tensor)

    steps: dict[str, Callable[[], object]] = {
        "copy": copy,
        "leaves": lambda: leaves_of(spans),
        "apply_": lambda: apply_(state, first),
        "switch_": lambda: patch_(state, lambda: switching(first, second)),
        "apply_, revert": lambda: apply_(state, second, revert=True),
    }
    seconds = dict.fromkeys(steps, float("inf"))
    crossed: dict[str, dict[str, int]] = {}
    for _ in range(repeat + 1):  # the first compiles kernels, and does not count
        for name, step in steps.items():
            settle(device)
            start = time.perf_counter()
            with counted() as bus:
                step()
            settle(device)
            taken = time.perf_counter() - start
            seconds[name] = min(seconds[name], taken) if name in crossed else float("inf")
            crossed[name] = dict(bus)
    expected = loaded(source, device)
    if not all(tensor.equal(expected[name]) for name, tensor in state.items()):
        raise SystemExit("the source did not come back")
    rows = []
    for name in steps:
        speed, share = size / seconds[name] / 1e9, seconds["copy"] / seconds[name]
        print(
            f"{name:8} {speed:9.2f} GB/s  {100 * share:6.1f} % of copy  {sum(crossed[name].values()) / size:6.3f}"
            " bytes crossed per byte of the model",
            flush=True,
        )
        rows.append({"step": name, "gb_per_s": speed, "of_copy": share, "crossed": crossed[name]})
    return rows


def loaded(source: Checkpoint, device: torch.device) -> dict[str, torch.Tensor]:
    """A checkpoint of bf16 tensors on a device."""
    return {
        name: torch.from_numpy(source.read(name, 0, info.numel).copy().view("<i2"))
        .view(torch.bfloat16).reshape(info.shape).to(device)
        for name, info in source.tensors.items()
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
