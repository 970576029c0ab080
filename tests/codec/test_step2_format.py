"""``step2`` is what FORMAT.md shows, and blocks written once decode for ever."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import maskreg.artifact
from maskreg.codec.movers import find_movers
from maskreg.codec.sparse import write_sparse
from maskreg.codec.step2 import Step2
from tests.codec.samples import encoded, many, samples, written, written_sparse
from tests.codec.vectors import vectors
from tests.codec.writing import write


@pytest.mark.parametrize("name", samples())
def test_samples_come_back(kernels: str, name: str) -> None:
    source, target, block = samples()[name]
    assert np.array_equal(Step2().decode(source, block), target)


@pytest.mark.parametrize("number", range(len(many())))
def test_many_sub_blocks_come_back(kernels: str, number: int) -> None:
    source, target, block = many()[number]
    assert np.array_equal(Step2().decode(source, block), target)


def test_the_samples_have_every_mode() -> None:
    heads = [tuple(sample.block[4:8]) for sample in samples().values()]
    assert {kind for kind, *_ in heads} == set(range(8))
    assert {(rank > 0, scaled) for kind, _, rank, scaled in heads if kind == 2} == {
        (False, 0), (False, 1), (True, 0), (True, 1),
    }  # fmt: skip
    by_encoder = [samples()[name].block for name in encoded()]
    assert {(block[6] > 0, block[7]) for block in by_encoder if block[4] == 2} == {(False, 0), (False, 1), (True, 0)}


@pytest.mark.parametrize("name", vectors())
def test_blocks_written_once_decode_for_ever_and_are_what_is_written(kernels: str, name: str) -> None:
    (source, target, block), grid = vectors()[name]
    assert np.array_equal(Step2().decode(source, block), target)
    if grid:
        assert Step2().encode(source, target, grid) == block
    elif name in written():
        _, _, model, count = written()[name]
        assert write(source, target, model, count=count) == block
    else:
        _, _, sparse, parts = written_sparse()[name]
        assert write_sparse(source, find_movers(source, target), sparse, parts) == block


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
        assert Step2().decode(source, block).tolist() == target.tolist()
    assert [block[4] for block in blocks] == [2, 3]
    assert Step2().encode(source, target) == blocks[1]
    for shown, before, after in (
        ("02000000 00 00 00 00", [7, 7], [7, 7]),
        ("02000000 01 00 00 00 803f 813f", [0, 0], [0x3F80, 0x3F81]),
    ):
        assert f"`{shown}`" in text
        assert Step2().encode(np.array(before, np.uint16), np.array(after, np.uint16)) == bytes.fromhex(shown)
