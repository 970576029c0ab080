"""Matching the tensors of a checkpoint with a running model's by name.

Since version 5, transformers renames tensors and joins experts when it loads, as ``transformers.conversion_mapping``
says; before, only renames exist, and the model's class lists them. Tried in turn: the name that transformers'
conversion yields, the name itself, the name without wrappers' prefixes, and known patterns of models with stacked
experts or with a language model beside a vision model.

Models that do not have the tensors of a checkpoint, and so cannot be patched in place: refused by name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from maskreg.checkpoint.renaming import dialect_of
from maskreg.checkpoint.roles import WRAPPERS
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.layout import Concatenate, Cut, Join, Operation, Stack, Transpose, Unknown
from maskreg.live.memory import storage_key
from maskreg.words import natural

_WITHIN = rf"(?:{'|'.join(sorted(WRAPPERS | {'base_layer'}))})\."
_WRAPPERS = re.compile(rf"\A(?:module\.|base_model\.model\.|{_WITHIN})+|(?<=\.){_WITHIN}")
"""Of DataParallel, PEFT, those that checkpoints are rid of too, and PEFT around a single layer."""


def bare(name: str) -> str:
    """A name without what wrappers add."""
    return _WRAPPERS.sub("", name)


class Target(NamedTuple):
    """Names in the model, without what wrappers add, of one tensor of a checkpoint; and how it is joined with others.

    ``group``: index of its pattern among those whose tensors are joined.
    """

    names: tuple[str, ...]
    group: int = 0
    operations: tuple[Operation, ...] = ()


class Described:
    """The conversion of one model of transformers; empty for others. ``path``: of the model within what wraps it."""

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
        """Where a tensor goes; None if that is not described."""
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
    """A checkpoint's tensors in a model: joined or alone, missing, or ignored by the model when it is loaded."""

    joins: list[Join] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def find(names: Iterable[str], tensors: Mapping[str, torch.Tensor], model: torch.nn.Module | None = None) -> Matches:
    """Find a checkpoint's tensors in a model."""
    described = Described(model)
    known = _by_bare_name(tensors, described.path)
    matches = Matches()
    joined: dict[tuple[tuple[str, ...], tuple[Operation, ...], bool], dict[int, list[str]]] = {}
    for name in sorted(names, key=natural):
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


_QUANTIZED = ("bitsandbytes", "torchao", "optimum", "gptqmodel", "auto_gptq", "awq", "hqq", "quanto")
"""Packages whose tensors and modules hold quantized weights."""

_MARKS = (
    "qweight", "qzeros", "weight_scale", "weight_scale_inv", "weight_packed", "weight_zero_point", "quant_state", "SCB",
    "_packed_params",
)  # fmt: skip
"""Attributes of modules that hold quantized weights."""

_TO_16_BITS = "load the model in its 16-bit dtype, patch it, and quantize it afterwards"


def refuse_wrapped(module: torch.nn.Module) -> None:
    """Refuse modules whose parameters are elsewhere than where the module shows them."""
    # A model that is wrapped has its wrapper imported.
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    for path, each in module.named_modules():
        if fsdp is not None and isinstance(each, fsdp.FullyShardedDataParallel):
            raise UsageError(
                f"{path or 'the model'} is wrapped in FullyShardedDataParallel (FSDP1), which keeps its parameters in"
                " one flat tensor",
                hint="shard with torch.distributed.fsdp.fully_shard (FSDP2), or patch the model before it is wrapped",
            )
    for name, parameter in module.named_parameters():
        if hasattr(parameter, "ds_id") and hasattr(parameter, "ds_status"):
            raise UsageError(
                f"{name} is partitioned by DeepSpeed's ZeRO-3, which leaves a placeholder in the model",
                hint="patch the model before deepspeed.initialize, or under ZeRO-2",
            )


def quantized(name: str, tensors: Mapping[str, torch.Tensor], module: torch.nn.Module | None) -> str | None:
    """What quantizes a tensor, as a class or attribute to name; None if nothing seems to."""
    tensor = tensors.get(name)
    if tensor is not None and _of(type(tensor)):
        return type(tensor).__name__
    owner_name, _, _ = bare(name).rpartition(".")
    owner = _submodule(module, owner_name)
    if owner is not None and _of(type(owner)):
        return type(owner).__name__
    prefix = f"{owner_name}." if owner_name else ""
    names = {bare(each) for each in tensors}
    mark = next((m for m in _MARKS if f"{prefix}{m}" in names or f"{bare(name)}.{m}" in names), None)
    return mark and f"{prefix}{mark}"


def missing_error(
    name: str, expected: Iterable[str], tensors: Iterable[str], *, hint: str, others: str = ""
) -> WrongCheckpointError:
    """The refusal of a model that has not all tensors of a checkpoint."""
    fault = f"missing in this model{others}"
    if found := dialect_of(tensors, expected):
        dialect, sample = found
        return WrongCheckpointError(name, f"{fault}, which has {dialect.names}: {sample}", hint=dialect.loaded)
    return WrongCheckpointError(name, fault, hint=hint)


def quantized_error(name: str, by: str) -> WrongCheckpointError:
    """The refusal of a tensor that ``by`` quantizes."""
    return WrongCheckpointError(
        name, f"quantized in this model ({by}); the delta is between 16-bit values", hint=_TO_16_BITS
    )


def _of(kind: type) -> bool:
    names = [each.__module__ for each in kind.__mro__]
    return any(name.split(".")[0] in _QUANTIZED or name.startswith("torch.ao.") for name in names)


def _submodule(module: torch.nn.Module | None, name: str) -> torch.nn.Module | None:
    if module is None:
        return None
    return next((each for path, each in module.named_modules() if bare(f"{path}.").removesuffix(".") == name), None)
