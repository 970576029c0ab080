"""The state dict in an archive, or in several of one process each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskreg.checkpoint.files import OpenFile
from maskreg.checkpoint.pickled.archive import Archive
from maskreg.checkpoint.pickled.tensors import ShardedTensor, StoredTensor, load_archive
from maskreg.checkpoint.statedict import Choice, Chooser, Path, weights_among
from maskreg.errors import FormatError, LimitError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.names import check_name, shown
from maskreg.words import listed

_DEPTH = 8
_SAVE = "torch.save(model.state_dict(), PATH)"


@dataclass(frozen=True)
class StateDict:
    """The weights of one archive.

    Attributes:
        archive: that holds them.
        tensors: by name.
        notes: what was left out or renamed, one sentence each.
    """

    archive: Archive
    tensors: Mapping[str, StoredTensor | ShardedTensor]
    notes: tuple[str, ...]


def read_state_dict(file: OpenFile, limits: Limits = LIMITS, choose: Chooser = weights_among) -> StateDict:
    """The weights that a file of ``torch.save`` holds, or what else is chosen.

    Raises:
        FormatError: no such file, or no weights in it.
        CorruptError: it is cut short.
        LimitError: it exceeds a limit.
    """
    archive = Archive(file, 0, file.size, limits)
    tensors: dict[Path, StoredTensor | ShardedTensor] = {}
    others: dict[Path, int] = {}
    _Walk(file.path.name, tensors, others).visit(load_archive(archive, limits), ())
    if () in tensors:
        raise FormatError(f"{file.path.name}: a tensor without a name, not a state dict", hint=_SAVE)
    if len(tensors) > limits.tensors:
        raise LimitError(f"{file.path.name}: {len(tensors)} tensors; the limit is {limits.tensors}")
    choice = choose({path: math.prod(tensor.shape) for path, tensor in tensors.items()}, file.path.name)
    named = {name: tensors[path] for path, name in choice.names.items()}
    for name in named:
        check_name(name, file.path.name, limits)
    return StateDict(archive, named, (*choice.notes, *_rest(choice, others)))


class _Walk:
    """Collects tensors in dictionaries and lists, and counts other values by their dictionary."""

    def __init__(self, document: str, tensors: dict[Path, Any], others: dict[Path, int]) -> None:
        self._document, self._tensors, self._others = document, tensors, others
        # A dictionary that holds itself would have no end.
        self._visited: set[int] = set()

    def visit(self, value: Any, path: Path) -> None:
        if isinstance(value, StoredTensor | ShardedTensor):
            self._tensors[path] = value
        elif isinstance(value, dict | list):
            if id(value) in self._visited:
                return
            if len(path) >= _DEPTH:
                raise FormatError(f"{self._document}: dictionaries more than {_DEPTH} deep ({shown('.'.join(path))})")
            self._visited.add(id(value))
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                self.visit(item, (*path, str(key)))
        elif value is not None:
            self._others[path] = 1


def _rest(choice: Choice, others: Mapping[Path, int]) -> tuple[str, ...]:
    own = [path[-1] for path in others if path[:-1] == choice.prefix and choice.prefix]
    if not own:
        return ()
    return (f"left out values of the state dict that are no tensors: {listed(list(map(shown, own)), 3)}",)
