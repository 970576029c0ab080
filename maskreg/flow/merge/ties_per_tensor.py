"""TIES as merge tools have it: an exact number of changes is kept in every tensor."""

from __future__ import annotations

from maskreg.flow.merge.base import DENSITY, LAMBDA, SIGN, Floats, Method, Settings, Tile
from maskreg.flow.merge.fusing import fused
from maskreg.flow.merge.numbers import kept


def merge(tile: Tile) -> Floats:
    """The trimmed updates, brought together; a sum of 0 elects plus."""
    pairs = zip(tile.updates, tile.known.cuts, strict=True)
    trimmed = [kept(update, cut.above(update, tile.first)) for update, (cut,) in pairs]
    return fused(trimmed, tile.weights, tile.settings)


def ranks(numel: int, settings: Settings) -> tuple[int, ...]:
    """How many each update keeps of a tensor: at least one, unless the density is 0."""
    return (max(1, int(settings["density"] * numel)) if settings["density"] > 0 else 0,)


METHOD = Method(
    name="ties-per-tensor",
    paper='P. Yadav et al., "TIES-Merging", NeurIPS 2023, arXiv 2306.01708; trimmed by tensor as mergekit does',
    summary="keep the largest changes of every tensor, elect signs, average what agrees",
    merge=merge,
    settings={"density": DENSITY, "sign": SIGN, "lambda": LAMBDA},
    ranks=ranks,
)
"""The line of the table of methods."""
