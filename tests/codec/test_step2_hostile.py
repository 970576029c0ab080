"""Damaged blocks: values or a clear error, also where every index is checked."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maskreg.codec.layout import MODEL_START, Layout
from maskreg.codec.step2 import Step2
from maskreg.errors import CorruptError
from maskreg.tensors.info import BLOCK_NUMEL
from tests.codec.fuzz import Outcome, fuzz
from tests.codec.samples import samples

ROOT = Path(__file__).parent.parent.parent

BLOCKS = 300


@pytest.fixture(scope="module")
def checked(sanitized_kernels: dict[str, str]) -> Outcome:
    """What became of the blocks where a read or write outside an array ends the process."""
    command = [sys.executable, "-m", "tests.codec.fuzz", "--blocks", str(BLOCKS), "--seed", "1"]
    environment = {**os.environ, **sanitized_kernels}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return Outcome(**json.loads(done.stdout))


def test_every_block_gives_values_or_a_clear_error(kernels: str, checked: Outcome) -> None:
    assert checked.decoded + checked.refused == BLOCKS
    # Most of the damage is found; enough of it is not, and reaches the last coordinate.
    assert checked.refused > BLOCKS // 2
    assert checked.decoded > BLOCKS // 10
    # What is watched does the same as what is not.
    assert fuzz(BLOCKS, 1).digest == checked.digest


def test_no_block_takes_much_memory() -> None:
    assert fuzz(BLOCKS, 2).grown < 64 << 10


@pytest.mark.parametrize("width", [1, 1 << 11, BLOCK_NUMEL])
@pytest.mark.parametrize(("rank", "scaled"), [(32, 1), (32, 0), (0, 1)])
def test_a_short_block_cannot_ask_for_long_lines(width: int, rank: int, scaled: int) -> None:
    head = struct.pack("<IBBBBIIhHI", BLOCK_NUMEL, 2, 1, rank, scaled, width, width - 1, 0, 1, 400)
    with pytest.raises(CorruptError, match="contexts"):
        Step2().decode(np.zeros(BLOCK_NUMEL, np.uint16), head + bytes(500))


def test_a_coded_block_is_no_longer_than_a_raw_one() -> None:
    source, _, block = samples()["one frequency"]
    head, states = bytearray(block[:-64]), block[-64:]
    most = (8 + 2 * source.size - len(block)) // 2
    for words in (most, most + 1):
        struct.pack_into("<I", head, len(head) - 8, words)
        with pytest.raises(CorruptError, match=r"\d+ .*\d+" if words > most else r"\b0\b"):
            Step2().decode(source, bytes(head) + states + bytes(2 * words))


def test_every_build_says_what_is_damaged(kernels: str) -> None:
    draw = np.random.default_rng(5)
    source = draw.integers(0x3C00, 0x3E00, 1 << 17).astype(np.uint16)
    target = source + draw.integers(-2, 3, source.size).astype(np.uint16)
    block = Step2().encode(source, target)
    layout = Layout(block)
    directory, first = int(layout.starts[0]) - layout.directory.size * 4, int(layout.starts[1])
    assert len(layout.directory) == 2
    for start, stop, text in [
        (MODEL_START, MODEL_START + 20, r"^block: \D+$"),
        (directory, directory + 4, r"^block: \D+$"),
        (first, first + 4, r"\b1\b"),
    ]:
        hostile = block[:start] + bytes(255 - byte for byte in block[start:stop]) + block[stop:]
        with pytest.raises(CorruptError, match=text):
            Step2().decode(source, hostile)
    with pytest.raises(CorruptError):
        Step2().decode(source, block[: directory + 15])


@pytest.mark.parametrize("name", samples())
def test_every_beginning_of_a_block_is_refused(name: str) -> None:
    source, _, block = samples()[name]
    for size in range(len(block)):
        with pytest.raises(CorruptError):
            Step2().decode(source, block[:size])
    with pytest.raises(CorruptError):
        Step2().decode(source, block + b"\0")
