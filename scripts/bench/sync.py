"""Measures a step of weight sync on one generated model, each figure beside what it is judged by, in one run.

CPU seconds of one thread; the best repetition counts, and the compared works take turns. ``publish``: of a model in
memory, beside reading both copies once and hashing them. ``stage``: of a link, beside decoding XOR under zstd into
whole tensors. ``commit``: beside torch's ``index_copy_`` of the same elements. ``fold``: staging ten links at once,
beside staging one. ``bytes``: of a link, beside other projects' encodings of the same change, each under zstd 1 and 3.

  python -m scripts.bench.sync --gigabytes 2 --json sync.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numcodecs.zstd import compress, decompress
from safetensors.torch import save_file

import maskreg
from maskreg.artifact.reader import Artifact
from maskreg.digest import leaf_hashes
from maskreg.flow.apply.in_memory import stage
from maskreg.update.delta import Delta

SHAPE = (14336, 4096)
WEIGHT_STD = 0.02
UPDATE_STD = {0.01: 2.6e-7, 0.03: 8.8e-7, 0.05: 1.65e-6}
"""Of a step, in fp32; by the share of the bf16 weights that move, about."""

State = dict[str, torch.Tensor]


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the model (default 2)")
    parser.add_argument("--density", type=float, default=0.01, choices=UPDATE_STD, help="that moves (default 0.01)")
    parser.add_argument("--links", type=int, default=10, help="links that are folded (default 10)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions; the best counts (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    return parser.parse_args()


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    options = parsed()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        figures = measured(Path(name), options)
    for title, row in figures.items():
        print(f"{title:10} " + "  ".join(f"{key} {value:,.4g}" for key, value in row.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps({**vars(options), "json": None, "figures": figures}, indent=1) + "\n")


def measured(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Every figure, by what is measured."""
    count = max(1, round(options.gigabytes * 1e9 / 2 / np.prod(SHAPE)))
    masters = [torch.randn(SHAPE).mul_(WEIGHT_STD) for _ in range(count)]
    state = {f"w{number}": master.bfloat16() for number, master in enumerate(masters)}
    before = {name: tensor.clone() for name, tensor in state.items()}
    (folder / "source").mkdir()
    save_file(state, folder / "source" / "model.safetensors")
    settings = maskreg.Settings(home=folder / "home", config_path=folder / "config.toml", jobs=1)
    figures: dict[str, dict[str, float]] = {}
    with (
        maskreg.Workspace(settings) as space,
        maskreg.Publisher("lab/run", source=folder / "source", jobs=1, workspace=space) as publisher,
    ):
        publisher.prepare()
        links: list[Artifact] = []
        for _ in range(max(options.links, options.repeat)):
            last = {name: tensor.clone() for name, tensor in state.items()} if not links else {}
            for master, tensor in zip(masters, state.values(), strict=True):
                tensor.copy_(master.add_(torch.randn(SHAPE), alpha=UPDATE_STD[options.density]))
            row = figures.setdefault("publish", {})
            published = best(row, "publish", lambda: publisher.publish(state))
            links.append(published.artifact)
            best(row, "read and hash", lambda: [*map(leaf_hashes, map(bits, [*before.values(), *state.values()]))])
            if last:
                figures["bytes"] = sizes(last, state, links[0])
    for _ in range(options.repeat):
        compare(figures, before, links)
    return figures


def compare(figures: dict[str, dict[str, float]], before: State, links: list[Artifact]) -> None:
    """Stage, commit and fold once, each beside what it is judged by."""
    model = {name: tensor.clone() for name, tensor in before.items()}
    staging, committing, folding = (figures.setdefault(key, {}) for key in ("stage", "commit", "fold"))
    staged = best(staging, "stage", lambda: stage(model, lambda: [Delta(links[0])], jobs=1))
    best(committing, "commit", staged.commit)
    committing["elements"] = staged.moved
    xors = [compress((bits(model[name]) ^ bits(before[name])).tobytes(), 3) for name in model]
    into = np.empty(bits(next(iter(model.values()))).size, np.uint16)

    def decode() -> None:
        for frame, tensor in zip(xors, before.values(), strict=True):
            decompress(frame, into)
            np.bitwise_xor(into, bits(tensor), out=into)

    best(staging, "XOR, zstd-3", decode)
    moved = {name: torch.from_numpy(np.flatnonzero(bits(model[name]) != bits(before[name]))) for name in model}
    values = {name: model[name].reshape(-1)[at] for name, at in moved.items()}
    fresh = {name: tensor.clone() for name, tensor in before.items()}
    copy = lambda: [fresh[name].reshape(-1).index_copy_(0, moved[name], values[name]) for name in fresh]  # noqa: E731
    best(committing, "index_copy_", copy)
    folding["links"] = len(links)
    best(folding, "fold", lambda: stage(before, lambda: [Delta(link) for link in links], jobs=1))


def sizes(before: State, after: State, link: Artifact) -> dict[str, float]:
    """Bytes of a link, and of the same change as others send it."""
    found: dict[str, float] = {"link": sum(each.size for each in link.manifest.objects if "/mask" not in each.key)}
    for name, tensor in after.items():
        old, new = bits(before[name]), bits(tensor)
        at = np.flatnonzero(old != new)
        gaps = np.diff(at, prepend=-1)
        short = gaps.astype("<u2" if gaps.max(initial=0) < 1 << 16 else "<u4").tobytes()
        plain = {
            "XOR": (old ^ new).tobytes(),
            "gaps, XOR": short + (old ^ new)[at].tobytes(),
            "gaps, values": short + new[at].tobytes(),
            "int32, values": at.astype("<i4").tobytes() + new[at].tobytes(),
        }
        for kind, data in plain.items():
            for level in (1, 3):
                key = f"{kind}, zstd-{level}"
                found[key] = found.get(key, 0) + len(compress(data, level))
    return found


def bits(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """A tensor's bits, uint16 ``[numel]``, in its own memory."""
    return tensor.view(torch.int16).reshape(-1).numpy().view(np.uint16)


def best(row: dict[str, float], key: str, work: Callable[[], Any]) -> Any:
    """Do work, and keep the least CPU seconds that it has taken."""
    begun = time.process_time()
    result = work()
    row[key] = min(row.get(key, float("inf")), time.process_time() - begun)
    return result


if __name__ == "__main__":
    main()
