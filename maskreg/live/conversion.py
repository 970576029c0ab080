"""How transformers converts a checkpoint into a model.

Since version 5 it renames tensors and joins experts when it loads, as described by ``transformers.conversion_mapping``;
before, only renames exist, and the model's class lists them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from maskreg.live.layout import Concatenate, Cut, Operation, Stack, Transpose, Unknown
from maskreg.live.wrappers import bare


class Target(NamedTuple):
    """Where one tensor of a checkpoint goes.

    Attributes:
        names: in the model, without what wrappers add.
        group: index of its pattern among those whose tensors are joined.
        operations: that join them.
    """

    names: tuple[str, ...]
    group: int = 0
    operations: tuple[Operation, ...] = ()


class Described:
    """The conversion of one model; empty if the model is not of transformers.

    Attributes:
        path: of the model within the modules that wrap it, with a final dot.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        """Find the model of transformers among the modules."""
        self.path, self._model = _pretrained(model)
        self._renamings: list[Any] = []
        self._converters: list[Any] = []
        for transform in _transforms(self._model):
            if transform.scope_prefix:
                transform.scope_prefix = bare(f"{transform.scope_prefix}.").removesuffix(".")
            (self._converters if hasattr(transform, "operations") else self._renamings).append(transform)

    def ignores(self, name: str) -> bool:
        """Whether the model ignores a tensor of its checkpoints on purpose."""
        patterns = getattr(self._model, "_keys_to_ignore_on_load_unexpected", None) or ()
        return any(re.search(pattern, name) for pattern in patterns)

    def target(self, name: str, known: Mapping[str, object]) -> Target | None:
        """Where a tensor goes; None if that is not described.

        Args:
            name: in the checkpoint.
            known: names in the model.
        """
        if self._model is None:
            return None
        converted = name
        for transform in self._renamings:
            converted, _ = transform.rename_source_key(converted)
        for transform in self._converters:
            renamed, pattern = transform.rename_source_key(converted)
            if pattern is not None:
                return self._converted(transform, renamed, pattern, known)
        target = self._with_or_without_base(converted, known)
        return None if target is None else Target((target,))

    def _converted(self, transform: Any, renamed: str, pattern: str, known: Mapping[str, object]) -> Target | None:
        first = transform.target_patterns[0]
        names = [
            self._with_or_without_base(renamed.replace(first, each, 1), known) for each in transform.target_patterns
        ]
        targets = tuple(name for name in names if name is not None)
        if len(targets) < len(names):
            return None
        operations = tuple(_operation(operation) for operation in transform.operations)
        return Target(targets, transform.source_patterns.index(pattern), operations)

    def _with_or_without_base(self, name: str, known: Mapping[str, object]) -> str | None:
        base = f"{getattr(self._model, 'base_model_prefix', '')}."
        candidates = (name, name.removeprefix(base), f"{base}{name}")
        return next((candidate for candidate in candidates if candidate in known), None)


def _pretrained(model: torch.nn.Module | None) -> tuple[str, torch.nn.Module | None]:
    """The only outermost model of transformers among the modules, and its path; none if there are several."""
    if model is None or "transformers" not in sys.modules:
        return "", None
    from transformers import PreTrainedModel

    models: dict[str, torch.nn.Module] = {}
    for path, module in model.named_modules():
        if isinstance(module, PreTrainedModel) and not any(f"{path}.".startswith(outer) for outer in models):
            models[f"{path}." if path else ""] = module
            if not path:
                break
    return next(iter(models.items())) if len(models) == 1 else ("", None)


def _transforms(model: torch.nn.Module | None) -> list[Any]:
    """Renames and joins, copied, because using them changes them."""
    if model is None:
        return []
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
    except ImportError:
        patterns = getattr(model, "_checkpoint_conversion_mapping", None) or {}
        return [_Renaming(re.compile(pattern), target) for pattern, target in patterns.items()]
    known: list[Any] = get_model_conversion_mapping(model)
    texts = {repr(transform) for transform in known}
    # The user's own conversions take precedence.
    own = [deepcopy(each) for each in getattr(model, "_weight_conversions", None) or () if repr(each) not in texts]
    return own + known


@dataclass
class _Renaming:
    """A rename of transformers before version 5."""

    pattern: re.Pattern[str]
    target: str
    scope_prefix = ""

    def rename_source_key(self, name: str) -> tuple[str, str]:
        return self.pattern.sub(self.target, name), self.pattern.pattern


def _operation(operation: Any) -> Operation:
    match type(operation).__name__:
        case "MergeModulelist":
            return Stack(operation.dim)
        case "Concatenate":
            return Concatenate(operation.dim)
        case "Transpose":
            return Transpose(operation.dim0, operation.dim1, operation.check_dims)
        case "Split":
            return Cut(operation.dim)
        case "Chunk" if operation.num_shards_attribute is None:
            return Cut(operation.dim)
        case name:
            return Unknown(name)
