"""Measures decoding on the GPU, beside a copy on the GPU, and beside decoding on the CPU and copying to the GPU.

Blocks of generated pairs of checkpoints are decoded as by ``maskreg apply --device cuda`` and ``apply_()``: several
threads, each with a CUDA stream, give the GPU several blocks at a time. Wall times start with coded bytes on the CPU
and a source on the GPU, and end with values on the GPU; the best repetition counts. Speeds are bytes of one checkpoint
(GB = 10^9 bytes) a second. Everything decoded is compared with the target first.

  python -m scripts.bench.gpu --json gpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from maskreg.codec import DEFAULT_CODEC, get_codec, grid_at
from maskreg.device import own_stream
from scripts.bench.pairs import SPECS, generated

ItemT = TypeVar("ItemT")

UNAVAILABLE = 69
"""Exit code on a machine without a GPU: ``EX_UNAVAILABLE`` of sysexits.h."""

WAYS = ((1, 1), (1, 4), (1, 16), (1, 64), (16, 1), (16, 4))
"""Threads, and blocks that each passes to the GPU in one call."""


class Row(NamedTuple):
    """One way from a coded pair to values on the GPU; a copy has no coded bits."""

    pair: str
    way: str
    bits_per_param: float
    gb_per_s: float


@dataclass(frozen=True)
class Coded:
    """A coded block; its source and target are on the GPU."""

    source: torch.Tensor
    target: torch.Tensor
    block: bytes


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default cuda)")
    parser.add_argument("--pairs", nargs="+", default=["opd", "sync"], choices=[spec.name for spec in SPECS])
    parser.add_argument("--blocks", type=int, default=64, help="of 2^22 coordinates, to decode (default 64)")
    parser.add_argument("--distinct", type=int, default=8, help="number of different blocks among them (default 8)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions; the best counts (default 5)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for decoding on the CPU (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    return parser.parse_args()


def main() -> int:
    """Measure, print a table, and write JSON if requested."""
    options = parsed()
    device = gpu(options.device)
    if device is None:
        return UNAVAILABLE
    machine = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {os.cpu_count()} cores"
    print(machine)
    rows: list[Row] = []
    for name in options.pairs:
        coded = coded_blocks(name, options.distinct, device)
        for row in measured(name, list(islice(cycle(coded), options.blocks)), options.repeat, options.threads):
            print(f"{row.pair:6} {row.way:44} {row.bits_per_param:6.3f} b/p {row.gb_per_s:9.2f} GB/s", flush=True)
            rows.append(row)
    if options.json:
        result = {"machine": machine, "blocks": options.blocks, "rows": [row._asdict() for row in rows]}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def gpu(name: str) -> torch.device | None:
    """The device of that name; None, with a message, on a machine without a GPU."""
    if torch.cuda.is_available():
        return torch.device(name)
    print("no CUDA device: nothing was measured", file=sys.stderr)
    return None


def coded_blocks(name: str, count: int, device: torch.device) -> list[Coded]:
    """The largest blocks of a generated pair, at most ``count``."""
    (spec,) = [spec for spec in SPECS if spec.name == name]
    pair = generated(spec, hidden=2048)
    blocks = sorted(pair.blocks(), key=lambda block: -block.source.size)[:count]
    codec = get_codec(DEFAULT_CODEC)

    def up(codes: object) -> torch.Tensor:
        return torch.from_numpy(np.array(codes).view(np.int16)).to(device)

    with ThreadPoolExecutor() as pool:
        coded = pool.map(lambda b: codec.encode(b.source, b.target, grid_at(b.shape, b.start)), blocks)
        return [Coded(up(b.source), up(b.target), data) for b, data in zip(blocks, coded, strict=True)]


def measured(name: str, blocks: list[Coded], repeat: int, threads: int) -> list[Row]:
    """Every way on one pair."""
    codec = get_codec(DEFAULT_CODEC)
    device = blocks[0].source.device
    params = sum(block.source.numel() for block in blocks)
    bits = 8 * sum(len(block.block) for block in blocks) / params

    def decode(group: list[Coded]) -> list[torch.Tensor]:
        with own_stream(device):
            return codec.decode_tensors([block.source for block in group], [block.block for block in group])

    def by_cpu(block: Coded) -> torch.Tensor:
        values = codec.decode(block.source.cpu().numpy().view(np.uint16), block.block)
        return torch.from_numpy(values.view(np.int16)).to(device)

    for block, values in zip(blocks, decode(blocks), strict=True):
        if not values.equal(block.target):
            raise SystemExit(f"{name}: a block was not decoded to the target")
    copies = [torch.empty_like(block.source) for block in blocks]

    def copy() -> None:
        for copied, block in zip(copies, blocks, strict=True):
            copied.copy_(block.source)

    def row(way: str, work: Callable[[], None], bits_per_param: float = bits) -> Row:
        return Row(name, way, bits_per_param, 2 * params / best(work, repeat, device) / 1e9)

    rows = [row("copy on the device", copy, 0.0)]
    for count, size in WAYS:
        groups = [blocks[i : i + size] for i in range(0, len(blocks), size)]
        rows.append(row(f"decode on the GPU, {count} threads by {size}", each(decode, groups, count)))
    rows.append(row(f"decode on the CPU and copy, {threads} threads", each(by_cpu, blocks, threads)))
    return rows


def each(work: Callable[[ItemT], object], items: list[ItemT], threads: int) -> Callable[[], None]:
    """A function that does the work on all items and discards the results."""

    def all_items() -> None:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(work, items):
                pass

    return all_items


def best(work: Callable[[], None], repeat: int, device: torch.device) -> float:
    """Seconds of the fastest repetition, after a warm-up."""
    times = []
    for _ in range(repeat + 1):
        settle(device)
        start = time.perf_counter()
        work()
        settle(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def settle(device: torch.device) -> None:
    """Wait until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
