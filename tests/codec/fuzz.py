"""Damages blocks of every mode and decodes them: ``python -m tests.codec.fuzz --blocks 100000 --seed 0``.

Each outcome is values of the right shape or CorruptError; anything else ends the run with a traceback. Between them,
values that no training gives are encoded, since checkpoints come from outside too. With
``--sanitized`` the kernels are built anew so that a read or write outside an array, an overflow or a shift too far ends
it too; ``MASKREG_KERNELS`` names their level. The digest of all outcomes is printed, so that builds can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from maskreg.codec import Grid
from maskreg.codec.step2 import Step2
from maskreg.errors import CorruptError
from maskreg.parallel import Buffers
from tests.codec.samples import many
from tests.codec.vectors import vectors
from tests.native.sanitizing import sanitized

Codes = npt.NDArray[np.uint16]

_FIELDS = [(0, "<I"), *((at, "<B") for at in range(4, 8)), (8, "<I"), (12, "<I"), (16, "<h"), (18, "<H"), (20, "<I")]
_EXTREMES = [
    0, 1, 2, 11, 12, 13, 22, 31, 32, 33, 255, 511, 512, 4096, 1 << 22, (1 << 22) + 1, (1 << 31) - 1, (1 << 32) - 1,
]  # fmt: skip


def _flip(draw: random.Random, block: bytearray) -> None:
    for _ in range(draw.randint(1, 4)):
        block[draw.randrange(len(block))] ^= 1 << draw.randrange(8)


def _overwrite(draw: random.Random, block: bytearray) -> None:
    at = draw.randrange(len(block))
    for i in range(at, min(len(block), at + draw.choice([1, 2, 4, 8, 64]))):
        block[i] = draw.choice([0, 255, draw.randrange(256)])


def _truncate(draw: random.Random, block: bytearray) -> None:
    del block[draw.randrange(len(block)) :]


def _move(draw: random.Random, block: bytearray) -> None:
    """Remove some bytes, and insert them elsewhere or nowhere."""
    at, size = draw.randrange(len(block)), draw.choice([1, 2, 8, 100])
    part = block[at : at + size]
    del block[at : at + size]
    if draw.random() < 0.8:
        at = draw.randint(0, len(block))
        block[at:at] = part * draw.randint(1, 2)


def _splice(draw: random.Random, block: bytearray) -> None:
    _, donor = draw.choice(_BLOCKS)
    at = draw.randrange(len(block))
    size = draw.randint(1, 200)
    begin = draw.choice([at, draw.randrange(len(donor))])
    block[at : at + size] = donor[begin : begin + size]


def _set_field(draw: random.Random, block: bytearray) -> None:
    at, kind = draw.choice(_FIELDS)
    if at + struct.calcsize(kind) <= len(block):
        bits = 8 * struct.calcsize(kind)
        value = draw.choice([*_EXTREMES, draw.getrandbits(bits), struct.unpack_from(kind, block, at)[0] + 1])
        block[at : at + bits // 8] = (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _change_model(draw: random.Random, block: bytearray) -> None:
    if len(block) > 24:
        end = min(len(block), 24 + struct.unpack_from("<I", block, 20)[0])
        for _ in range(draw.randint(1, 2)):
            block[draw.randrange(24, end) if end > 24 else 24] ^= 1 << draw.randrange(8)


def _change_directory(draw: random.Random, block: bytearray) -> None:
    """Move sizes between words and extra bits, or between sub-blocks; often so that the total stays right."""
    at = 24 + struct.unpack_from("<I", block, 20)[0] if len(block) > 24 else len(block)
    entries = block[5] if len(block) > 5 else 0
    if not entries or at + 8 * entries > len(block):
        return
    counts = list(struct.unpack_from(f"<{2 * entries}I", block, at))
    left, right = draw.randrange(2 * entries), draw.randrange(2 * entries)
    words = draw.choice([1, 2, 100, draw.getrandbits(31)])
    counts[left] += words if left % 2 == 0 else 16 * words
    counts[right] -= words if right % 2 == 0 else 16 * words
    if draw.random() < 0.2:
        counts[left] = draw.choice(_EXTREMES)
    struct.pack_into(f"<{2 * entries}I", block, at, *(count & 0xFFFFFFFF for count in counts))


def _change_body(draw: random.Random, block: bytearray) -> None:
    """Change states, words or extra bits, which are checked only by decoding them."""
    for _ in range(draw.randint(1, 8)):
        block[-draw.randint(1, min(len(block), 200))] = draw.randrange(256)


_DAMAGE: list[Callable[[random.Random, bytearray], None]] = [
    _flip, _overwrite, _truncate, _move, _splice, _set_field, _change_model, _change_model,
    _change_directory, _change_body,
]  # fmt: skip

_BLOCKS = [(sample.source, sample.block) for sample in [*(sample for sample, _ in vectors().values()), *many()]]


_ENCODED = 0.05
"""Share of the blocks after which one is encoded."""


@dataclass
class Outcome:
    """Counts of what became of the blocks.

    Attributes:
        decoded, refused: how many.
        grown: KiB that the process's largest size grew while decoding.
        digest: of everything that was decoded or encoded, and of what was refused.
    """

    decoded: int
    refused: int
    grown: int
    digest: str


def fuzz(blocks: int, seed: int) -> Outcome:
    """Decode that many damaged blocks."""
    draw = random.Random(seed)
    step2, digest = Step2(), hashlib.sha256()
    for source, block in _BLOCKS:
        step2.decode(source, block)
        digest.update(_encoded(step2, source, draw))
    counts = [0, 0]
    before = _largest()
    for _ in range(blocks):
        source, block = draw.choice(_BLOCKS)
        hostile = bytearray(block)
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            if hostile:
                draw.choice(_DAMAGE)(draw, hostile)
        values = _decode(step2, source, bytes(hostile))
        counts[values is None] += 1
        if draw.random() < _ENCODED:
            digest.update(_encoded(step2, source, draw))
        digest.update(b"refused" if values is None else values.tobytes())
    grown = _largest() - before
    return Outcome(counts[0], counts[1], grown, digest.hexdigest())


def _encoded(step2: Step2, source: Codes, draw: random.Random) -> bytes:
    """A block of some target, on some grid.

    Raises:
        ValueError: it does not decode to the target.
    """
    n, numbers = source.size, np.random.default_rng(draw.getrandbits(32))
    target = source.copy()
    moved = numbers.random(n) < draw.choice([0.001, 0.03, 0.5, 1])
    count = int(np.count_nonzero(moved))
    anything, own = numbers.integers(0, 1 << 16, count, np.uint16), source[moved]
    target[moved] = draw.choice([own ^ 1, own ^ 3, own ^ 0x8000, own & 0x8000, 0 * own, own + 128, anything])
    width = draw.choice([1, 33, n // 40 + 1, n, 1 << 32])
    block = step2.encode(source, target, Grid(width, draw.randrange(width)))
    if not np.array_equal(step2.decode(source, block), target):
        raise ValueError(f"another target than the one of {n} values that was encoded")
    return block


def _largest() -> int:
    """The process's largest size so far, in KiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    # Linux's ru_maxrss begins with the size of the process that started this one.
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


def _decode(step2: Step2, source: Codes, block: bytes) -> Codes | None:
    """The values that a block gives; None when it is refused.

    Raises:
        ValueError: neither, or its movers are others.
    """
    try:
        values = step2.decode(source, block)
    except CorruptError:
        return None
    movers = step2.movers(source, block)
    if not np.array_equal(movers.positions, np.flatnonzero(values != source)):
        raise ValueError("its movers are not where its values differ")
    if not np.array_equal(movers.codes, values[movers.positions]):
        raise ValueError("its movers do not become its values")
    if values.shape != source.shape or values.dtype != np.uint16:
        raise ValueError(f"{values.dtype} {values.shape} for {source.shape}")
    return values


def _exactly(_: Buffers, use: str, size: int, phase: int = 0) -> npt.NDArray[np.uint8]:
    return np.empty(size, np.uint8)


def main() -> None:
    """Run, and print the outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitized", action="store_true")
    args = parser.parse_args()
    if args.sanitized:
        again = [arg for arg in sys.argv[1:] if arg != "--sanitized"]
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | sanitized(Path(folder))
            sys.exit(subprocess.run([sys.executable, "-m", "tests.codec.fuzz", *again], env=environment).returncode)
    # Memory that is used again is larger than it has to be, which would hide what is read or written beyond its end.
    with patch.object(Buffers, "bytes", _exactly):
        json.dump(vars(fuzz(args.blocks, args.seed)), sys.stdout)
    print()


if __name__ == "__main__":
    main()
