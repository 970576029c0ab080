"""``step2`` is what FORMAT.md says: an independent decoder agrees, and blocks written once decode for ever."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import maskreg.artifact
from maskreg.codec.step2 import Step2
from maskreg.errors import CorruptError
from tests.codec import reference
from tests.codec.reading import RefusedError
from tests.codec.samples import encoded, many, samples
from tests.codec.vectors import vectors
from tests.kernels import KERNELS

Codes = npt.NDArray[np.uint16]


@pytest.mark.parametrize("name", samples())
def test_an_independent_decoder_agrees(name: str) -> None:
    sample = samples()[name]
    assert reference.decode(sample.source.tolist(), sample.block) == sample.target.tolist()
    assert np.array_equal(Step2().decode(sample.source, sample.block), sample.target)


@pytest.mark.parametrize("number", range(len(many())))
def test_many_sub_blocks_decode_as_an_independent_decoder_does(kernels: str, number: int) -> None:
    source, target, block = many()[number]
    assert np.array_equal(Step2().decode(source, block), target)
    if kernels == KERNELS[0]:
        assert reference.decode(source.tolist(), block) == target.tolist()


def test_the_samples_have_every_mode() -> None:
    heads = [tuple(sample.block[4:8]) for sample in samples().values()]
    assert {kind for kind, *_ in heads} == set(range(8))
    assert {(rank > 0, scaled) for kind, _, rank, scaled in heads if kind == 2} == {
        (False, 0), (False, 1), (True, 0), (True, 1),
    }  # fmt: skip
    by_encoder = [samples()[name].block for name in encoded()]
    assert {(block[6] > 0, block[7]) for block in by_encoder if block[4] == 2} == {(False, 0), (False, 1), (True, 0)}


@pytest.mark.parametrize("name", vectors())
def test_blocks_written_once_decode_for_ever(name: str) -> None:
    (source, target, block), _ = vectors()[name]
    assert np.array_equal(Step2().decode(source, block), target)
    assert reference.decode(source.tolist(), block) == target.tolist()


@pytest.mark.parametrize("name", [name for name, (_, grid) in vectors().items() if grid])
def test_this_encoder_always_writes_these_bytes(kernels: str, name: str) -> None:
    (source, target, block), grid = vectors()[name]
    assert grid is not None
    assert Step2().encode(source, target, grid) == block


def test_the_examples_in_the_format_are_blocks() -> None:
    text = (Path(maskreg.artifact.__file__).parent / "FORMAT.md").read_text()
    example = text.split("### 5.10 Examples")[1].split("## 6.")[0]
    source, target = np.full(64, 0x3F80, np.uint16), np.full(64, 0x3F80, np.uint16)
    target[[3, 19]], target[27], target[35], target[51] = 0x3F81, 0x3F7F, 0x3F94, 0xBF80
    blocks = [
        bytes.fromhex("".join(re.findall(r"^\| `([0-9a-f ]+)` \|", part, re.MULTILINE)))
        for part in example.split("as a sparse block")
    ]
    for block in blocks:
        assert reference.decode(source.tolist(), block) == Step2().decode(source, block).tolist() == target.tolist()
    assert [block[4] for block in blocks] == [2, 3]
    assert Step2().encode(source, target) == blocks[1]
    for shown, before, after in (
        ("02000000 00 00 00 00", [7, 7], [7, 7]),
        ("02000000 01 00 00 00 803f 813f", [0, 0], [0x3F80, 0x3F81]),
    ):
        assert f"`{shown}`" in text
        assert Step2().encode(np.array(before, np.uint16), np.array(after, np.uint16)) == bytes.fromhex(shown)


@pytest.mark.parametrize("name", samples())
def test_both_decoders_refuse_the_same_blocks(name: str) -> None:
    """Every byte of what comes before the sub-blocks, changed; and some of theirs."""
    source, _, block = samples()[name]
    draw = np.random.default_rng(len(block))
    for at in {*range(min(len(block), 24)), *draw.integers(0, len(block), 60).tolist()}:
        hostile = bytearray(block)
        hostile[at] ^= 1 << int(draw.integers(8))
        assert _by_product(source, bytes(hostile)) == _by_reference(source, bytes(hostile))


def _by_product(source: Codes, block: bytes) -> list[int] | None:
    try:
        values: list[int] = Step2().decode(source, block).tolist()
    except CorruptError:
        return None
    return values


def _by_reference(source: Codes, block: bytes) -> list[int] | None:
    try:
        return reference.decode(source.tolist(), block)
    except RefusedError:
        return None
