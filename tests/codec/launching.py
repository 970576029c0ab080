"""Decodes blocks of every mode with Triton's kernels: ``python -m tests.codec.launching [cpu|cuda]``.

On the CPU that takes ``TRITON_INTERPRET=1``, before anything imports Triton; hence a process of its own. What came out
is printed as JSON, beside what the decoder for the CPU says of the same blocks.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from maskreg.codec import FLAT, triton_decode
from maskreg.codec.layout import CODED, LANES, SPARSE, Head, Layout
from maskreg.codec.movers import find_movers
from maskreg.codec.sparse import SparseLayout, choose_model, count_movers, write_sparse
from maskreg.codec.step2 import Step2, _Encoder
from maskreg.errors import CorruptError
from tests.codec.samples import Sample, moved, samples, written_sparse

Codes = npt.NDArray[np.uint16]

STEP2 = Step2()

ALONE = {"one": 1, "a group less one": LANES - 1, "a group": LANES, "a group and one": LANES + 1, "odd": 131}
"""Coordinates of blocks that are decoded one by one."""

DAMAGED_NUMEL = 2_000
"""No larger samples are damaged."""

MUTANTS = 3
"""Of each."""

GPU_ALONE = {
    *("noise", "scales, begins within a row", "sparse matrix", "scales and factors", "sparse, numbers that are none"),
    *("sparse, highest hazards", "extreme factors and scales"),
}
"""Samples for whose branches there are others: Triton's interpreter takes seconds for each."""

MOVERS = 3
"""Of a sparse sample, where Triton is interpreted."""


class Mutant(NamedTuple):
    """A damaged block that can be laid out, and what the CPU makes of it: values, or None when it refuses."""

    layout: Layout
    context: Codes
    by_cpu: Codes | None


def main(device: str) -> None:
    """Print what came out."""
    outcome = {"together": together(device), "alone": alone(device), "damaged": damaged(device)}
    print(json.dumps({**outcome, "damaged sparse": damaged_sparse(device)}))


def together(device: str) -> dict[str, bool]:
    """Whether samples come out, all decoded at once."""
    triton_decode.PROGRAM_LANES = (
        32 if device == "cuda" else 1024
    )  # An interpreted program costs the same, large or small.
    blocks = samples() if device == "cuda" else {name: _shortened(name) for name in samples().keys() - GPU_ALONE}
    contexts = [_up(sample.source, device) for sample in blocks.values()]
    values = STEP2.decode_tensors(contexts, [sample.block for sample in blocks.values()])
    return {name: _same(got, blocks[name].target) for name, got in zip(blocks, values, strict=True)}


def alone(device: str) -> dict[str, bool]:
    """Whether small blocks come out, each in a launch of its own."""
    triton_decode.PROGRAM_LANES = 32
    outcomes = {}
    for name, n in ALONE.items():
        sample = _coded(n)
        (values,) = triton_decode.decode_layouts([_up(sample.source, device)], [Layout(sample.block)])
        outcomes[name] = _same(values, sample.target)
    return outcomes


def damaged(device: str) -> dict[str, int]:
    """How many damaged blocks both decoders refuse, decode to the same values, or do not agree on."""
    triton_decode.PROGRAM_LANES = 32 if device == "cuda" else 1 << 14
    tally = {"refused before a launch": 0, "refused": 0, "same": 0, "different": 0}
    mutants: list[Mutant] = []
    draw = random.Random(0)
    for sample in samples().values():
        if sample.source.size > DAMAGED_NUMEL or Head.read(sample.block).kind != CODED:
            continue
        for _ in range(MUTANTS):
            mutant = _laid_out(sample, _mutated(sample.block, draw))
            tally["refused before a launch"] += mutant is None
            mutants += [mutant] if mutant else []
    values, failed = triton_decode.launch([_up(m.context, device) for m in mutants], [m.layout for m in mutants])
    at, first = 0, 0
    for mutant in mutants:
        got, wrong = values[at : at + mutant.layout.n], failed[first : first + len(mutant.layout.directory)].any()
        at, first = at + mutant.layout.n, first + len(mutant.layout.directory)
        agreed = wrong if mutant.by_cpu is None else not wrong and _same(got, mutant.by_cpu)
        tally["different" if not agreed else "refused" if wrong else "same"] += 1
    return tally


def damaged_sparse(device: str) -> dict[str, int]:
    """The same of sparse blocks, fewer where each mover takes a tenth of a second."""
    tally = {"refused": 0, "same": 0, "different": 0}
    draw = random.Random(1)
    sample = samples()["sparse, by one ULP"]
    for _ in range(MUTANTS if device == "cuda" else 4):
        block = bytearray(sample.block)
        block[draw.randrange(len(block) - 12, len(block))] ^= 1 << draw.randrange(8)
        values, failed = triton_decode.launch_sparse([_up(sample.source, device)], [SparseLayout(bytes(block))])
        try:
            agreed = _same(values, STEP2.decode(sample.source, bytes(block))) and not failed.any()
        except CorruptError:
            agreed = bool(failed.any())
        tally["different" if not agreed else "refused" if failed.any() else "same"] += 1
    return tally


def _shortened(name: str) -> Sample:
    """A sample; of a sparse one, a few of its movers, spread over all sub-blocks."""
    sample = samples()[name]
    if Head.read(sample.block).kind != SPARSE:
        return sample
    movers = np.flatnonzero(sample.source != sample.target)
    kept = movers[np.linspace(0, len(movers) - 1, min(MOVERS, len(movers))).astype(int)]
    target = sample.source.copy()
    target[kept] = sample.target[kept]
    if name in written_sparse():
        _, _, model, count = written_sparse()[name]
    else:
        counts = count_movers(sample.source, find_movers(sample.source, sample.target))
        model, count = choose_model(counts)[0], 1
    return Sample(sample.source, target, write_sparse(sample.source, find_movers(sample.source, target), model, count))


def _laid_out(sample: Sample, block: bytes) -> Mutant | None:
    """None when both decoders refuse it before they come to its sub-blocks."""
    try:
        by_cpu: Codes | None = STEP2.decode(sample.source, block)
    except CorruptError:
        by_cpu = None
    try:
        Head.read(block)
        layout = Layout(block)
        triton_decode.gather([layout])
    except CorruptError:
        assert by_cpu is None
        return None
    return Mutant(layout, sample.source, by_cpu)


def _mutated(block: bytes, draw: random.Random) -> bytes:
    data = bytearray(block)
    for _ in range(draw.choice([1, 1, 2, 8])):
        data[draw.randrange(5, len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _coded(n: int) -> Sample:
    """A coded block even of a single coordinate, which the encoder would rather store as it is."""
    source, target = moved(n, 0.5, n)
    return Sample(source, target, _Encoder(source, target, FLAT).encode())


def _up(codes: Codes, device: str) -> torch.Tensor:
    return torch.from_numpy(codes.view(np.int16).copy()).to(device)


def _same(values: torch.Tensor, codes: Sequence[int] | Codes) -> bool:
    return bool(np.array_equal(values.cpu().numpy().view(np.uint16), codes))


if __name__ == "__main__":
    main(*sys.argv[1:])
