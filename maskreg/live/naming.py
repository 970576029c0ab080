"""Which tensors of a running model those of a checkpoint are, by their names.

A name is looked for as transformers says that it is loaded, then as it is, then without what wrappers put in front,
then by what is known of models that keep their experts in one tensor or a language model beside a visual one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from maskreg.errors import WrongCheckpointError
from maskreg.live.conversion import Described, Target
from maskreg.live.layout import Concatenate, Join, Operation, Stack
from maskreg.live.memory import place_of
from maskreg.live.wrappers import bare

_RENAMED = [
    (re.compile(r"\Amodel\.(?!language_model\.|visual\.)"), "model.language_model."),
    (re.compile(r"\Alanguage_model\.model\."), "model.language_model."),
    (re.compile(r"\Alanguage_model\.lm_head\."), "lm_head."),
    (re.compile(r"\A(?=(?:visual|vision_tower|multi_modal_projector)\.)"), "model."),
]
"""Names of models for text and images, as checkpoints have them and as models have them since transformers 4.52."""

_EXPERT = re.compile(
    r"(?P<layer>(?:.*\.)?)(?:block_sparse_moe|(?P<block>\w+))\.experts\.\d+\.(?P<which>gate_proj|w1|up_proj|w3|down_proj|w2)"
    r"\.weight"
)

_STACKED = {
    "gate_proj": ("gate_up_proj", 0), "w1": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1), "w3": ("gate_up_proj", 1),
    "down_proj": ("down_proj", 0), "w2": ("down_proj", 0),
}  # fmt: skip
"""Which tensor has one of an expert's, and which of its parts that is."""


@dataclass(frozen=True)
class Found:
    """What the names of a checkpoint are in a model.

    Attributes:
        joins: every name that was found, alone or with those it is joined with.
        missing: names that the model has nothing for.
        ignored: names that the model leaves out of what it loads.
    """

    joins: list[Join] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def find(names: Iterable[str], tensors: Mapping[str, torch.Tensor], model: torch.nn.Module | None = None) -> Found:
    """Find a checkpoint's tensors in a model.

    Args:
        names: in the checkpoint.
        tensors: the model's, by the names that it gives them; those that are tied by each.
        model: the model, to ask transformers about it.

    Raises:
        WrongCheckpointError: a name means several tensors here.
    """
    described = Described(model)
    here = _by_bare_name(tensors, described.path)
    found = Found()
    joined: dict[tuple[tuple[str, ...], tuple[Operation, ...], bool], dict[int, list[str]]] = {}
    for name in sorted(names, key=_natural):
        target, guessed = _target(name, here, described, tensors)
        if target is None:
            (found.ignored if described.ignores(name) else found.missing).append(name)
        elif not target.operations:
            found.joins.append(Join(((name,),), (_only(name, target.names[0], here, tensors),)))
        else:
            runtime = tuple(_only(name, each, here, tensors) for each in target.names)
            joined.setdefault((runtime, target.operations, guessed), {}).setdefault(target.group, []).append(name)
    for (runtime, operations, guessed), groups in joined.items():
        sources = tuple(tuple(groups[number]) for number in sorted(groups))
        found.joins.append(Join(sources, runtime, operations, guessed))
    return found


def _target(
    name: str, here: Mapping[str, list[str]], described: Described, tensors: Mapping[str, torch.Tensor]
) -> tuple[Target | None, bool]:
    """Where a tensor goes, and whether its name alone says so."""
    target = described.target(name, here) or described.target(bare(name), here)
    if target is not None:
        return target, False
    for known in (name, bare(name), *(pattern.sub(new, bare(name)) for pattern, new in _RENAMED)):
        if known in here or known in tensors:
            return Target((known,)), False
    expert = _EXPERT.fullmatch(bare(name))
    if expert is not None:
        stacked, group = _STACKED[expert["which"]]
        place = f"{expert['layer']}{expert['block'] or 'mlp'}.experts.{stacked}"
        for known in (place, *(pattern.sub(new, place) for pattern, new in _RENAMED)):
            if known in here:
                joining = (Stack(0), Concatenate(1)) if stacked == "gate_up_proj" else (Stack(0),)
                return Target((known,), group, joining), True
    return None, False


def _by_bare_name(tensors: Mapping[str, torch.Tensor], path: str) -> dict[str, list[str]]:
    here: dict[str, list[str]] = {}
    for name in tensors:
        for one in {bare(name), bare(name.removeprefix(path))}:
            here.setdefault(one, []).append(name)
    return here


def _only(name: str, target: str, here: Mapping[str, list[str]], tensors: Mapping[str, torch.Tensor]) -> str:
    if target in tensors:
        return target
    names = here[target]
    if len({place_of(tensors[one]) for one in names}) > 1:
        raise WrongCheckpointError(
            name, f"ambiguous here: {' or '.join(names[:3])}", hint="give one of the models in it"
        )
    return names[0]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts experts by number."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]
