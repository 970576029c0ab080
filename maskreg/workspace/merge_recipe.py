"""What a merge is asked for: by arguments, or by a recipe in YAML that says the same.

A recipe::

    method: ties
    artifacts:
      - lab/sums-opd
      - {ref: lab/sums-opd:seed1, weight: 0.5}
    settings:
      density: 0.3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.errors import BadRefError, FormatError, UsageError
from maskreg.ref import parse_artifact
from maskreg.tensors.names import shown
from maskreg.workspace.plain_yaml import read_yaml
from maskreg.workspace.workspace import ArtifactLike, Named

if TYPE_CHECKING:
    from maskreg.flow.merge.recipe import Recipe

_KEYS = ("method", "artifacts", "settings")
_OPERAND_KEYS = ("ref", "weight")
_HINT = "a recipe has the keys method, artifacts (a list of references, or of ref and weight) and settings"

Weights = Sequence[float] | Mapping[str, float]


@dataclass(frozen=True)
class Request:
    """What to merge, and how; not checked yet.

    Attributes:
        artifacts: in order.
        method: name of the method.
        weights: in the order of the artifacts, or by reference; None for 1 each.
        settings: of the method, as given.
        mask: for methods that take one.
    """

    artifacts: Sequence[ArtifactLike]
    method: str
    weights: Weights | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mask: ArtifactLike | None = None

    def recipe(self, operands: Sequence[Named]) -> Recipe:
        """The checked and complete recipe for these artifacts.

        Raises:
            UsageError: it does not fit them, or makes no sense.
        """
        from maskreg.flow.merge.recipe import Recipe

        return Recipe.of(self.method, self._in_order(operands), self.settings)

    def _in_order(self, operands: Sequence[Named]) -> list[float]:
        if self.weights is None:
            return [1.0] * len(operands)
        if not isinstance(self.weights, Mapping):
            if len(self.weights) != len(operands):
                raise UsageError(f"{len(self.weights)} weights for {len(operands)} artifacts")
            return [_weight(value, operand.name) for value, operand in zip(self.weights, operands, strict=True)]
        left = {_normal(key): value for key, value in self.weights.items()}
        ordered = []
        for artifact, operand in zip(self.artifacts, operands, strict=True):
            digest = str(operand.digest)
            names = {_normal(str(artifact)), operand.name, digest, f"{operand.name}@{digest}"}
            key = next((key for key in left if key in names), None)
            ordered.append(1.0 if key is None else _weight(left.pop(key), operand.name))
        if left:
            raise UsageError(
                f"a weight for {next(iter(left))}, which is not merged",
                hint=f"merged are {', '.join(operand.name for operand in operands)}",
            )
        return ordered


def request_of(
    artifacts: Sequence[ArtifactLike],
    method: str,
    weights: Weights | None,
    settings: Mapping[str, Any] | None,
    recipe: str | Path | None,
) -> Request:
    """What was asked for by arguments or by a recipe; one of the two.

    Raises:
        UsageError: both, or neither.
        NotFoundError: there is no such recipe.
        FormatError: it is not a recipe.
        LimitError: it is too large.
    """
    if recipe is not None:
        if artifacts or method or weights or settings:
            raise UsageError(
                "a recipe names artifacts, method, weights and settings", hint="leave them out, or leave out the recipe"
            )
        return _parsed(Path(recipe))
    if not artifacts:
        raise UsageError("nothing to merge", hint="name one artifact or several")
    if not method:
        raise UsageError("no merge method was chosen", hint="choose one, such as linear or ties")
    return _with_mask(artifacts, method, weights, dict(settings or {}))


def _with_mask(
    artifacts: Sequence[ArtifactLike], method: str, weights: Weights | None, settings: dict[str, Any]
) -> Request:
    mask = settings.pop("mask", None)
    if isinstance(mask, list | dict):
        raise UsageError(f"the mask is {shown(mask)}; it must be one reference")
    return Request(artifacts, method, weights, settings, mask)


def _parsed(path: Path) -> Request:
    document = read_yaml(path, "recipe", hint=_HINT)
    if not isinstance(document, dict):
        raise FormatError(f"{path}: not a recipe", hint=_HINT)
    if unknown := [key for key in document if key not in _KEYS]:
        raise FormatError(f"{path}: unknown key {unknown[0]!r}", hint=_HINT)
    method, settings = document.get("method"), document.get("settings") or {}
    entries = document.get("artifacts")
    if not isinstance(method, str) or not isinstance(settings, dict) or not isinstance(entries, list) or not entries:
        raise FormatError(f"{path}: method, artifacts or settings are missing or of another kind", hint=_HINT)
    pairs = [_operand(entry, path) for entry in entries]
    return _with_mask([ref for ref, _ in pairs], method, [weight for _, weight in pairs], dict(settings))


def _operand(entry: object, path: Path) -> tuple[str, float]:
    if isinstance(entry, str):
        return entry, 1.0
    if not isinstance(entry, dict) or "ref" not in entry or not isinstance(entry["ref"], str):
        raise FormatError(f"{path}: an artifact is neither a reference nor has one: {shown(entry)}", hint=_HINT)
    if unknown := [key for key in entry if key not in _OPERAND_KEYS]:
        raise FormatError(f"{path}: unknown key {unknown[0]!r} of {entry['ref']}", hint=_HINT)
    return entry["ref"], _weight(entry.get("weight", 1.0), entry["ref"])


def _weight(value: object, of: str) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"the weight of {of} is {shown(value)}; it must be a number")


def _normal(text: str) -> str:
    """A reference as it is written in full, so that a name with and without its default tag are one."""
    try:
        return str(parse_artifact(text))
    except BadRefError:
        return text
