"""What a merge is asked for: by arguments, or by a recipe in YAML; see :mod:`maskreg.flow.merge.mergekit`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.bucket import is_url
from maskreg.errors import BadRefError, FormatError, LimitError, NotFoundError, UsageError, prefixed
from maskreg.extras import requiring
from maskreg.limits import LIMITS, Limits
from maskreg.ref import parse_artifact
from maskreg.tensors.info import shown
from maskreg.workspace.verbs.extract import extract
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace

if TYPE_CHECKING:
    from maskreg.flow.merge.mergekit import Translated
    from maskreg.flow.merge.recipe import Recipe


_HINT = "a recipe has the keys merge_method, base_model, models and parameters"

Weights = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """What to merge, and how; not checked yet.

    Attributes:
        artifacts: in order.
        method: name of the method.
        weights: in the order of the artifacts, or by reference; None for 1 each.
        settings: of the method, as given.
        mask: for methods that take one.
        written: what a recipe says; its models, artifacts or checkpoints, are the artifacts.
    """

    artifacts: Sequence[ArtifactLike]
    method: str
    weights: Weights | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mask: ArtifactLike | None = None
    written: Translated | None = None

    def recipe(self, operands: Sequence[Named]) -> Recipe:
        """The checked and complete recipe for these artifacts."""
        from maskreg.flow.merge.recipe import Recipe

        if self.written is not None:
            return self.written.recipe
        return Recipe.of(self.method, self._in_order(operands), self.settings)

    def _in_order(self, operands: Sequence[Named]) -> Sequence[Any]:
        from maskreg.flow.merge.recipe import weight_of

        if self.weights is None:
            return [1.0] * len(operands)
        if not isinstance(self.weights, Mapping):
            if len(self.weights) != len(operands):
                raise UsageError(f"{len(self.weights)} weights for {len(operands)} artifacts")
            return [
                weight_of(value, f"the weight of {operand.name}")
                for value, operand in zip(self.weights, operands, strict=True)
            ]
        left = {_normal(key): value for key, value in self.weights.items()}
        ordered = []
        for artifact, operand in zip(self.artifacts, operands, strict=True):
            digest = str(operand.digest)
            names = {_normal(str(artifact)), operand.name, digest, f"{operand.name}@{digest}"}
            key = next((key for key in left if key in names), None)
            ordered.append(1.0 if key is None else weight_of(left.pop(key), f"the weight of {operand.name}"))
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
    """What was asked for by arguments or by a recipe; one of the two."""
    if recipe is not None:
        if artifacts or method or weights or settings:
            raise UsageError(
                "a recipe names artifacts, method, weights and settings", hint="leave them out, or leave out the recipe"
            )
        from maskreg.flow.merge.mergekit import translated

        document = read_yaml(Path(recipe))
        with prefixed(f"{recipe}: "):
            found = translated(document)
        return Request(found.models, found.recipe.method.name, mask=found.mask, written=found)
    if not artifacts:
        raise UsageError("nothing to merge", hint="name one artifact or several")
    if not method:
        raise UsageError("no merge method was chosen", hint="choose one, such as linear or ties")
    settings = dict(settings or {})
    mask = settings.pop("mask", None)
    if isinstance(mask, list | dict):
        raise UsageError(f"the mask is {shown(mask)}; it must be one reference")
    return Request(artifacts, method, weights, settings, mask)


def artifacts_of(
    space: Workspace,
    request: Request,
    source: CheckpointLike | None,
    *,
    dry_run: bool,
    **how: Any,
) -> tuple[list[Named], CheckpointLike | None, list[str]]:
    """The artifacts to merge, their source where it is known, and remarks.

    Models of a recipe that are checkpoints are extracted, and stored without a name.
    """
    if (recipe := request.written) is None:
        return [space.find(artifact) for artifact in request.artifacts], source, []
    base: CheckpointLike | None = source if source is not None else recipe.base or None
    found = [None if model == recipe.base else _stored(space, model) for model in recipe.models]
    notes = list(recipe.notes)
    if base is None and None in found:
        if any(found) or not recipe.counted:
            raise UsageError(
                f"{recipe.models[found.index(None)]} is no artifact, and the recipe has no base_model",
                hint="name what its models were made from",
                options={"source": "CKPT"},
            )
        base = recipe.models[0]
    operands = []
    for model, named in zip(recipe.models, found, strict=True):
        if named is None:
            assert base is not None
            if dry_run:
                raise UsageError(
                    f"{model} is a checkpoint, and a dry run stores no update of it",
                    hint="extract it first, and write its name in the recipe",
                    extracted=shlex.join([str(base), model]),
                )
            made = extract(base, base if model == recipe.base else model, workspace=space, **how)
            notes.append(f"{model} was extracted as {made.digest.short}")
            named = space.find(made.digest)
        operands.append(named)
    return operands, base, notes


def _stored(space: Workspace, model: str) -> Named | None:
    """The artifact of that name; None for a checkpoint, which a path that exists is, and a hub id."""
    if is_url(model) or Path(model).exists():
        return None
    try:
        return space.find(model)
    except (BadRefError, NotFoundError):
        return None


def _normal(text: str) -> str:
    """A reference as it is written in full, so that a name with and without its default tag are one."""
    try:
        return str(parse_artifact(text))
    except BadRefError:
        return text


def read_yaml(path: Path, *, limits: Limits = LIMITS) -> Any:
    """The recipe in a file, or a pipe: lists and mappings of texts, whatever they look like.

    ``no``, ``1e-3`` and ``2026-01-02`` mean different things to different readers of YAML. Aliases are refused: a page
    of them stands for more than any memory holds; and so are keys that appear twice, of which one would be lost.
    """
    with requiring("a recipe in YAML"):
        import yaml

    class Loader(yaml.BaseLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias; write it out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) < len(node.value):
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a key that appears twice")
            return mapping

    try:
        with path.open("rb") as file:
            # Also of what has no end, such as a device.
            data = file.read(limits.manifest_bytes + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such recipe") from error
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from error
    if len(data) > limits.manifest_bytes:
        raise LimitError(f"{path}: more than {limits.manifest_bytes} bytes, which is the limit of a recipe")
    try:
        return yaml.load(data, Loader)
    except RecursionError as error:
        raise FormatError(f"{path}: nested too deep", hint=_HINT) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not YAML: {' '.join(str(error).split())}", hint=_HINT) from error
