"""Pairs, artifacts and an independent reader of safetensors files for the tests of this room."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from maskreg.analysis.comparison import Comparison
from maskreg.analysis.verdict import Start
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.flow.extract.extraction import extract
from maskreg.flow.overlap.measure import NamedMask, OverlapSpec, measure_overlap
from maskreg.store.file import FileStore
from tests.checkpoints import Tensor, bf16, f16, make_checkpoint, moved

LEAF = 1 << 18
BLOCK = 1 << 22

SPECIAL = [
    0x0000, 0x8000,  # signed zeros
    0x0001, 0x8001, 0x007F,  # subnormals
    0x0080, 0x3F80, 0xBF80, 0x3F81, 0x7F7F, 0xFF7F,  # normal numbers, up to the largest
    0x7F80, 0xFF80,  # infinities
    0x7F81, 0xFF81, 0x7FBF, 0x7FC0, 0xFFC1, 0xFFFF,  # NaNs, signalling ones first
]  # fmt: skip


class NewMemory:
    """A progress listener that measures how much new memory was taken between two reports.

    Attributes:
        of_steps: most bytes above those at the beginning of each step.
    """

    def __init__(self) -> None:
        self.of_steps: list[int] = []
        self._base = 0

    def __enter__(self) -> Self:
        tracemalloc.start()
        return self

    def __exit__(self, *exc: object) -> None:
        tracemalloc.stop()

    def start(self, label: str, total_bytes: int) -> None:
        self._begin()

    def advance(self, n_bytes: int) -> None:
        self.of_steps.append(tracemalloc.get_traced_memory()[1] - self._base)
        self._begin()

    def _begin(self) -> None:
        self._base = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()


def every_special_pair() -> tuple[Tensor, Tensor]:
    """All pairs of special bf16 codes, source and target."""
    before, after = np.meshgrid(np.array(SPECIAL, np.uint16), np.array(SPECIAL, np.uint16))
    return ("BF16", before.copy()), ("BF16", after.copy())


def bits(values: Any, dtype: str = "BF16") -> Tensor:
    """A tensor of 16-bit codes."""
    return dtype, np.asarray(values, np.uint16)


def edge_pair() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One tensor for everything that has ever tripped a delta of 16-bit numbers."""
    rng = np.random.default_rng(7)
    special, special_after = every_special_pair()
    odd = bf16((3, 67), 1)
    one = bf16((130,), 2)
    one_after = one[1].copy()
    one_after[77] ^= 1
    noise, noise_after = (bits(rng.integers(0, 1 << 16, (41, 53))) for _ in range(2))
    large = bf16((2 * LEAF + 77,), 3)
    source = {
        "special": special,
        "odd": odd,
        "one_change": one,
        "all_changed": bf16((64, 5), 4),
        "unchanged": bf16((9, 9), 5),
        "noise": noise,
        "scalar": bits(0x3F80),
        "empty": bits(np.empty((0, 8))),
        "model.layers.0.mlp.experts.down_proj": bf16((3, 16, 24), 6),
        "half": f16((31, 3), 7),
        "large": large,
    }
    target = {
        "special": special_after,
        "odd": moved(odd, 0.5, 1),
        "one_change": bits(one_after),
        "all_changed": bits(source["all_changed"][1] ^ np.uint16(1)),
        "unchanged": source["unchanged"],
        "noise": noise_after,
        "scalar": bits(0x3F81),
        "empty": source["empty"],
        "model.layers.0.mlp.experts.down_proj": moved(source["model.layers.0.mlp.experts.down_proj"], 0.3),
        "half": moved(source["half"], 0.3),
        "large": moved(large, 0.01),
    }
    return source, target


def opened(
    directory: Path, source: Mapping[str, Tensor], target: Mapping[str, Tensor], *, shards: int = 1
) -> tuple[Checkpoint, Checkpoint]:
    """Both checkpoints, made below ``directory`` and opened."""
    made = [
        make_checkpoint(directory / name, tensors, shards=shards)
        for name, tensors in (("source", source), ("target", target))
    ]
    return open_checkpoint(made[0]), open_checkpoint(made[1])


def extracted(root: Path, source: Checkpoint, target: Checkpoint, **options: Any) -> Artifact:
    """The artifact of a pair, in a store at ``root``."""
    return Artifact.open(FileStore(root), extract(source, target, root, **options).digest)


def compared(
    masks: Sequence[Artifact],
    source: Checkpoint | None = None,
    *,
    starts: Sequence[Start] = (),
    jobs: int | None = None,
    **spec: Any,
) -> Comparison:
    """What masks share, under the digits of their digests."""
    told = starts or ["unknown"] * len(masks)
    named = [NamedMask(mask.digest.short, mask, start=start) for mask, start in zip(masks, told, strict=True)]
    return measure_overlap(named, source, OverlapSpec(**spec), jobs=jobs)


def stored(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and raw bytes of every tensor of a checkpoint, read without maskreg."""
    found = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        data = file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name != "__metadata__":
                start, stop = (8 + size + offset for offset in entry["data_offsets"])
                found[name] = (entry["dtype"], tuple(entry["shape"]), data[start:stop])
    return found


def left_over(directory: Path) -> list[str]:
    """What lies in a directory, hidden work included."""
    return sorted(path.name for path in directory.iterdir())
