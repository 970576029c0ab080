"""Tied weights: names under which a checkpoint holds the same tensor again.

``save_pretrained`` writes an output head that is tied to the embedding once. State dicts have it under both names, and
so have the files of runs; there, the head is an alias of the embedding, and not a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from maskreg.checkpoint.ahead import ahead, blocks_ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import role_of
from maskreg.digest import LEAF_NUMEL
from maskreg.tensors.info import TensorInfo


def tied(checkpoint: Checkpoint, locations: Mapping[str, Sequence[Hashable]]) -> Mapping[str, str]:
    """Aliases of tensors: names of the same bytes in the same place, and output heads that equal an embedding.

    Args:
        checkpoint: read from only where an output head has the form of an embedding.
        locations: where each tensor lies, in its pieces.
    """
    owners: dict[tuple[Hashable, ...], str] = {}
    aliases: dict[str, str] = {}
    # The head is the alias, wherever it stands.
    for info in sorted(checkpoint.tensors.values(), key=lambda info: role_of(info.name) == "lm_head"):
        if info.numel:
            owner = owners.setdefault((info.dtype, info.shape, *locations[info.name]), info.name)
            if owner != info.name:
                aliases[info.name] = owner
    by_role: dict[str, list[TensorInfo]] = {"embedding": [], "lm_head": []}
    for info in checkpoint.tensors.values():
        by_role.get(role_of(info.name), []).append(info)
    for head in by_role["lm_head"]:
        for owner_info in by_role["embedding"]:
            same_form = (owner_info.dtype, owner_info.shape) == (head.dtype, head.shape)
            if head.name in aliases or not head.numel or not same_form:
                continue
            if same_values(checkpoint, owner_info.name, head.name):
                aliases[head.name] = owner_info.name
    return aliases


def same_values(checkpoint: Checkpoint, left: str, right: str) -> bool:
    """Whether two tensors of one size hold the same bits.

    Args:
        checkpoint: that holds both.
        left: name of one.
        right: name of the other.
    """
    import numpy as np

    numel = checkpoint.tensors[left].numel

    def same(start: int, stop: int) -> bool:
        return np.array_equal(checkpoint.read(left, start, stop), checkpoint.read(right, start, stop))

    # Nearly always the first leaf decides, so nothing is read ahead before.
    if not same(0, min(LEAF_NUMEL, numel)):
        return False
    blocks = blocks_ahead(left, numel, checkpoint)
    return all(same(*span) for span in ahead(blocks, lambda span: (right, *span), checkpoint))
