"""Committed blocks: decoding them must never change.

``python -m tests.codec.vectors check`` codes and decodes them. ``write`` makes them anew, for a new ``encoder`` alone.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from maskreg.codec import Grid
from maskreg.codec.step2 import Step2
from tests.codec.samples import Sample, encoded, samples

Codes = npt.NDArray[np.uint16]

VECTORS = Path(__file__).parent / "vectors.json"


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _unpack(text: str) -> Codes:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u2").astype(np.uint16)


@cache
def vectors() -> dict[str, tuple[Sample, Grid | None]]:
    """Committed blocks, by name; the grid that the product's encoder was given, or None for blocks of others."""
    blocks = {}
    for name, row in json.loads(VECTORS.read_text()).items():
        source = _unpack(row["source"])
        sample = Sample(source, source ^ _unpack(row["change"]), base64.b64decode(row["block"]))
        blocks[name] = sample, Grid(*row["grid"]) if row["grid"] else None
    return blocks


def save_vectors() -> None:
    """Write the samples as they are now."""
    grids = {name: grid for name, (_, _, grid) in encoded().items()}
    rows = {
        name: {
            "source": _pack(sample.source.astype("<u2").tobytes()),
            "change": _pack((sample.source ^ sample.target).astype("<u2").tobytes()),
            "grid": grids.get(name),
            "block": base64.b64encode(sample.block).decode(),
        }
        for name, sample in samples().items()
    }
    VECTORS.write_text(json.dumps(rows, indent=1) + "\n")


def wrong() -> list[str]:
    """Names of the blocks that this machine encodes or decodes differently."""
    step2 = Step2()
    return [
        name
        for name, ((source, target, block), grid) in vectors().items()
        if (grid and step2.encode(source, target, grid) != block)
        or not np.array_equal(step2.decode(source, block), target)
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        save_vectors()
    else:
        sys.exit(", ".join(wrong()) or None)
