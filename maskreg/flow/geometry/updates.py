"""Updates beside each other, and beside the state of the optimizer that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from maskreg.analysis.updates import Floats, Products, UpdatePair, channel_overlap, mlp_of
from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import require_one_source
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, Selection, module_of
from maskreg.device import HostDevice
from maskreg.errors import PairMismatchError, PartAbsentError
from maskreg.flow.geometry.reading import TensorUpdate, UpdateReader
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import BLOCK_NUMEL


def compare_updates(
    artifacts: Sequence[Artifact],
    source: Checkpoint,
    names: Sequence[str] = (),
    *,
    selection: Selection = ALL,
    progress: Progress = SILENT,
) -> tuple[UpdatePair, ...]:
    """Measure how far updates of one source point the same way, for every pair.

    One tensor is in memory at a time, as stored, of the source and of every artifact.
    """
    labels = names or [artifact.digest.short for artifact in artifacts]
    for artifact, label in zip(artifacts, labels, strict=True):
        if artifact.manifest.kind != "delta":
            raise PartAbsentError(
                f"{label} is a {artifact.manifest.kind}: it holds which coordinates move, but not how far",
                hint="extract it with its values, or compare the masks alone",
            )
    require_one_source(artifacts, "updates", "compare updates of one source")
    readers = [UpdateReader(artifact, source, None, HostDevice(), selection) for artifact in artifacts]
    for reader, label in zip(readers[1:], labels[1:], strict=True):
        if reader.by_name.keys() != readers[0].by_name.keys():
            raise PairMismatchError(
                f"{labels[0]} and {label} cover different tensors", hint="choose roles or layers that both have"
            )
    progress.start("compare updates", sum(row.numel for row in readers[0].rows) * 2 * len(readers))
    pairs = [_Pair((labels[a], labels[b])) for a, b in combinations(range(len(readers)), 2)]
    rows = readers[0].rows

    for row in rows:
        products, channels = _products([reader.read(reader.by_name[row.name]) for reader in readers])
        for pair, product, (a, b) in zip(pairs, products, combinations(channels, 2), strict=True):
            pair.add(row, product)
            pair.add_channels(row, a, b)
        progress.advance(row.numel * 2 * len(readers))
    return tuple(pair.result() for pair in pairs)


@dataclass
class _Pair:
    """Sums over the tensors of two updates."""

    names: tuple[str, str]
    tensors: dict[str, tuple[Tensor, Products]] = field(default_factory=dict)
    channels: tuple[dict[str, Floats], dict[str, Floats]] = field(default_factory=lambda: ({}, {}))

    def add(self, row: Tensor, products: Products) -> None:
        self.tensors[row.name] = row, products

    def add_channels(self, row: Tensor, a: Floats | None, b: Floats | None) -> None:
        if (of := mlp_of(row.name, row.source_shape or ())) is None or a is None or b is None:
            return
        for sums, energies in zip(self.channels, (a, b), strict=True):
            sums[of[0]] = sums[of[0]] + energies if of[0] in sums else energies

    def result(self) -> UpdatePair:
        rows = list(self.tensors.values())
        groups: dict[str, dict[str, Products]] = {"role": {}, "layer": {}, "module": {}}
        for row, products in rows:
            labels = {"role": row.role, "layer": row.layer, "module": module_of(row.name, row.layer)}
            for kind, label in labels.items():
                if label:
                    groups[kind][label] = groups[kind].get(label, Products()) + products
        return UpdatePair(
            self.names,
            sum((products for _, products in rows), Products()),
            groups["role"],
            groups["layer"],
            groups["module"],
            {name: products for name, (_, products) in self.tensors.items()},
            channel_overlap(*self.channels),
        )


def _products(updates: Sequence[TensorUpdate]) -> tuple[list[Products], list[Floats | None]]:
    """Of every pair; and by update the energy of each channel, None for a tensor without channels."""
    row = updates[0].row
    products = [Products() for _ in combinations(updates, 2)]
    of = mlp_of(row.name, row.source_shape or ())
    channels: list[Floats | None] = [None if of is None else np.zeros((row.source_shape or ())[of[1]]) for _ in updates]
    shape = updates[0].before.shape or (1,)
    width = int(np.prod(shape[1:], dtype=np.int64))
    step = max(1, BLOCK_NUMEL // max(1, width))
    for start in range(0, shape[0], step):
        stop = min(start + step, shape[0])
        with np.errstate(invalid="ignore"):
            flat = [update.difference(start * width, stop * width) for update in updates]
        differences = [difference.reshape(stop - start, *shape[1:]) for difference in flat]
        for number, (a, b) in enumerate(combinations(differences, 2)):
            products[number] += Products.of(a.reshape(-1), b.reshape(-1))
        for difference, sums in zip(differences, channels, strict=True):
            if of is not None and sums is not None:
                squares = np.square(np.nan_to_num(difference, posinf=0.0, neginf=0.0))
                if of[1]:
                    sums += squares.sum(0)
                else:
                    sums[start:stop] += squares.sum(1)
    return products, channels
