"""Which of the tensors that a run saved are the model's weights, and what they are called.

Runs save more than weights, in dictionaries within dictionaries::

    {"model": {"layers.0.w": ..., "layers.1.w": ...},       the weights: the largest dictionary that is no optimizer's
     "optimizer": {"state": {0: {"exp_avg": ...}}},         left out, and said
     "step": 400}                                           left out: no tensor

and training wrappers leave their marks in names, such as ``_orig_mod.layers.0.w``; these are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from maskreg.errors import FormatError
from maskreg.tensors.info import shown
from maskreg.words import counted, listed

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"})
"""Parts of a name that torch.compile, FSDP and other wrappers add anywhere in it."""

FRONT = frozenset({"module"})
"""Parts that wrappers add at the front of every name; within a name they may be a model's own."""

_OPTIMIZER = ("optim", "scheduler", "rng", "dataloader", "train_state", "grad", "scaler")
_PREFERRED = ("model", "state_dict", "model_state_dict", "module", "network", "policy", "actor")
# A dictionary with fewer elements than this share of the largest holds counters and the like.
_SMALL = 1000

Path = tuple[str, ...]
"""Keys from the outermost dictionary to a value."""


class Choice(NamedTuple):
    """The tensors that are meant among all that was saved.

    Attributes:
        names: of every such tensor, by its path.
        prefix: path of the dictionary that holds them.
        notes: what was left out or renamed, one sentence each.
    """

    names: Mapping[Path, str]
    prefix: Path
    notes: tuple[str, ...]


Chooser = Callable[[Mapping[Path, int], str], Choice]
"""Chooses among all tensors that were saved, by path with their number of elements; takes a document's name too."""


def weights_among(sizes: Mapping[Path, int], document: str) -> Choice:
    """Choose the weights."""
    totals: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    for path, size in sizes.items():
        totals[path[:-1]] = totals.get(path[:-1], 0) + size
        counts[path[:-1]] = counts.get(path[:-1], 0) + 1
    prefix = _chosen({path: total for path, total in totals.items() if not _is_optimizer(path)}, document)
    names, note = cleaned([path[-1] for path in sizes if path[:-1] == prefix])
    left_out: dict[str, int] = {}
    for path, count in counts.items():
        if path != prefix:
            # Tensors of an optimizer lie in a dictionary for each weight: its outermost name says enough.
            outer = path[len(prefix)] if path[: len(prefix)] == prefix and len(path) > len(prefix) else ".".join(path)
            label = path[0] if path and _is_optimizer(path[:1]) else outer
            left_out[label] = left_out.get(label, 0) + count
    notes = [note] if note else []
    if left_out:
        parts = [
            f"{shown(label)[1:-1] or 'beside it'} ({counted(count, 'tensor')})" for label, count in left_out.items()
        ]
        notes.append(f"{document}: left out, because it is not the model's state dict: {listed(parts, 3)}")
    return Choice({(*prefix, name): names[name] for name in names}, prefix, tuple(notes))


def cleaned(names: list[str]) -> tuple[Mapping[str, str], str]:
    """Names without what training wrappers add to them, by the names as stored; and a note on it.

    Names stay as they are where two would become the same.
    """
    clean = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in names}
    for front in FRONT:
        if clean and all(name.startswith(f"{front}.") for name in clean.values()):
            clean = {name: short.removeprefix(f"{front}.") for name, short in clean.items()}
    changed = [name for name in names if clean[name] != name]
    if not changed or len(set(clean.values())) < len(names) or not all(clean.values()):
        return {name: name for name in names}, ""
    first = changed[0]
    number = counted(len(changed), "name")
    return clean, f"{number} without the marks of training wrappers: {shown(first)} is {shown(clean[first])}"


def _chosen(totals: Mapping[Path, int], document: str) -> Path:
    if not totals:
        raise FormatError(
            f"{document}: no weights in it, only what an optimizer or another part of a run keeps",
            hint="name the file or folder that the model was saved to",
        )
    most = max(totals.values())
    large = [path for path, total in totals.items() if total * _SMALL >= most]
    if () in large:
        return ()
    if len(large) == 1:
        return large[0]
    for word in _PREFERRED:
        if len(fitting := [path for path in large if path[-1] == word]) == 1:
            return fitting[0]
    names = listed([".".join(path) for path in large], 4)
    raise FormatError(
        f"{document}: {len(large)} state dicts in it ({names}), and nothing says which one is meant",
        hint="save the model's alone: torch.save(model.state_dict(), PATH)",
    )


def _is_optimizer(path: Path) -> bool:
    return any(part.lower().startswith(_OPTIMIZER) for part in path)
