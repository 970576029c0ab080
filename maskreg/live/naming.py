"""Matching the tensors of a checkpoint with those of a running model by name.

Tried in turn: the name that transformers' conversion yields, the name itself, the name without wrappers' prefixes, and
known patterns of models with stacked experts or with a language model beside a vision model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from maskreg.errors import WrongCheckpointError
from maskreg.live.conversion import Described, Target
from maskreg.live.layout import Concatenate, Join, Operation, Stack
from maskreg.live.memory import storage_key
from maskreg.live.wrappers import bare

_RENAMED = [
    (re.compile(r"\Amodel\.(?!language_model\.|visual\.)"), "model.language_model."),
    (re.compile(r"\Alanguage_model\.model\."), "model.language_model."),
    (re.compile(r"\Alanguage_model\.lm_head\."), "lm_head."),
    (re.compile(r"\A(?=(?:visual|vision_tower|multi_modal_projector)\.)"), "model."),
]
"""Names of models for text and images, in checkpoints and in models since transformers 4.52."""

_EXPERT = re.compile(
    r"(?P<layer>(?:.*\.)?)(?:block_sparse_moe|(?P<block>\w+))\.experts\.\d+\.(?P<which>gate_proj|w1|up_proj|w3|down_proj|w2)"
    r"\.weight"
)

_STACKED = {
    "gate_proj": ("gate_up_proj", 0), "w1": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1), "w3": ("gate_up_proj", 1),
    "down_proj": ("down_proj", 0), "w2": ("down_proj", 0),
}  # fmt: skip
"""The stacked tensor of an expert's tensor, and the group within it."""


@dataclass(frozen=True)
class Matches:
    """The tensors of a checkpoint in a model.

    Attributes:
        joins: every matched name, alone or with those it is joined with.
        missing: names without a match.
        ignored: names that the model ignores when it is loaded.
    """

    joins: list[Join] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def find(names: Iterable[str], tensors: Mapping[str, torch.Tensor], model: torch.nn.Module | None = None) -> Matches:
    """Find a checkpoint's tensors in a model.

    Args:
        names: in the checkpoint.
        tensors: the model's, by all of their names.
        model: the model, for transformers' conversion.

    Raises:
        WrongCheckpointError: a name matches several tensors.
    """
    described = Described(model)
    known = _by_bare_name(tensors, described.path)
    matches = Matches()
    joined: dict[tuple[tuple[str, ...], tuple[Operation, ...], bool], dict[int, list[str]]] = {}
    for name in sorted(names, key=_natural):
        target, guessed = _target(name, known, described, tensors)
        if target is None:
            (matches.ignored if described.ignores(name) else matches.missing).append(name)
        elif not target.operations:
            matches.joins.append(Join(((name,),), (_only(name, target.names[0], known, tensors),)))
        else:
            runtime = tuple(_only(name, each, known, tensors) for each in target.names)
            joined.setdefault((runtime, target.operations, guessed), {}).setdefault(target.group, []).append(name)
    for (runtime, operations, guessed), groups in joined.items():
        sources = tuple(tuple(groups[number]) for number in sorted(groups))
        matches.joins.append(Join(sources, runtime, operations, guessed))
    return matches


def _target(
    name: str, known: Mapping[str, list[str]], described: Described, tensors: Mapping[str, torch.Tensor]
) -> tuple[Target | None, bool]:
    """Where a tensor goes, and whether that is guessed from its name."""
    target = described.target(name, known) or described.target(bare(name), known)
    if target is not None:
        return target, False
    for candidate in (name, bare(name), *(pattern.sub(new, bare(name)) for pattern, new in _RENAMED)):
        if candidate in known or candidate in tensors:
            return Target((candidate,)), False
    expert = _EXPERT.fullmatch(bare(name))
    if expert is not None:
        stacked, group = _STACKED[expert["which"]]
        path = f"{expert['layer']}{expert['block'] or 'mlp'}.experts.{stacked}"
        for candidate in (path, *(pattern.sub(new, path) for pattern, new in _RENAMED)):
            if candidate in known:
                joining = (Stack(0), Concatenate(1)) if stacked == "gate_up_proj" else (Stack(0),)
                return Target((candidate,), group, joining), True
    return None, False


def _by_bare_name(tensors: Mapping[str, torch.Tensor], path: str) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    for name in tensors:
        for key in {bare(name), bare(name.removeprefix(path))}:
            known.setdefault(key, []).append(name)
    return known


def _only(name: str, target: str, known: Mapping[str, list[str]], tensors: Mapping[str, torch.Tensor]) -> str:
    if target in tensors:
        return target
    names = known[target]
    if len({storage_key(tensors[match]) for match in names}) > 1:
        raise WrongCheckpointError(
            name, f"ambiguous in this model: {' or '.join(names[:3])}", hint="pass one of its submodels"
        )
    return names[0]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that orders experts by number."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]
