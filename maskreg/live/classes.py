"""The class of a checkpoint's model, built without weights: where it has a tensor, and in which kind of module."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import read_whole
from maskreg.document import parse_object
from maskreg.errors import UsageError
from maskreg.extras import requiring
from maskreg.limits import LIMITS
from maskreg.words import listed

_CONFIG = "config.json"


class Place(NamedTuple):
    """Where a model's class has a tensor of its checkpoints: the path and, for messages, the kind of the module.

    ``linear``: whether that is ``torch.nn.Linear``, and the tensor its weight, unchanged.
    """

    module: str
    kind: str
    linear: bool


def places_of(checkpoint: Checkpoint, names: Collection[str]) -> Mapping[str, Place]:
    """Where the class that a checkpoint's ``config.json`` names has its tensors, in the installed transformers."""
    if not names:
        return {}
    with requiring("finding the modules of a model's class", "train"):
        import torch

        from maskreg.live.naming import find
    model = _built(checkpoint)
    tensors: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    places = {}
    for join in find(names, tensors, model).joins:
        module, _, leaf = join.targets[0].rpartition(".")
        owner = model.get_submodule(module)
        for name in (name for group in join.sources for name in group):
            same = not join.operations and tensors[join.targets[0]].shape == checkpoint.tensors[name].shape
            linear = isinstance(owner, torch.nn.Linear) and leaf == "weight" and same
            places[name] = Place(module, type(owner).__name__ if same else f"part of {type(owner).__name__}", linear)
    return places


def _built(checkpoint: Checkpoint) -> Any:
    import torch

    with requiring("finding the modules of a model's class", "train"):
        import transformers
    where = f"{checkpoint.path}: the names of its modules are not known"
    hint = "give the model's whole folder as --source, as save_pretrained writes it"
    file = checkpoint.small_files().get(_CONFIG)
    if file is None:
        raise UsageError(f"{where}: it has no {_CONFIG}", hint=hint)
    config = parse_object(read_whole(file, LIMITS.small_file_bytes), str(file), max_bytes=LIMITS.small_file_bytes)
    classes = config.get("architectures")
    named = [each for each in classes if isinstance(each, str)] if isinstance(classes, list) else []
    if not named:
        raise UsageError(f"{where}: {_CONFIG} names no class under architectures", hint=hint)
    kind = getattr(transformers, named[0], None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise UsageError(
            f"{where}: transformers {transformers.__version__} has no model {listed(named, 1)}",
            hint="pip install --upgrade transformers, or use --to slime",
        )
    try:
        with torch.device("meta"):
            return kind(transformers.AutoConfig.for_model(**config))
    except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{where}: transformers {transformers.__version__} cannot make a {named[0]} of {_CONFIG} ({error})",
            hint="pip install --upgrade transformers, or use --to slime",
        ) from error
