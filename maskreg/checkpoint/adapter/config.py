"""What an adapter's configuration says about merging it, and which adapters cannot be merged here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maskreg.checkpoint.layouts import ADAPTER_CONFIG
from maskreg.document import parse_object
from maskreg.errors import FormatError
from maskreg.limits import LIMITS, Limits
from maskreg.tensors.names import shown

MERGE = "merge it with merge_and_unload of the package peft, and save the result"
"""What to do with an adapter that cannot be merged as it is read."""

# How the adapter began, or what it is used for; nothing here changes what merging gives.
_NEUTRAL = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out", "bias", "use_rslora",
    "modules_to_save", "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern",
    "megatron_config", "megatron_core", "qalora_group_size", "loftq_config", "eva_config", "runtime_config",
    "ensure_weight_tying",
}  # fmt: skip
# Other ways to begin change the base model itself, which then is not the one that the configuration names.
_BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")
_PATTERN_LENGTH = 256
_REPETITIONS = re.compile(r"(?<!\\)[*+?{]")
_MAX_REPETITIONS = 2


@dataclass(frozen=True)
class AdapterConfig:
    """A LoRA adapter's configuration.

    Attributes:
        base: path or hub id of the model that it was trained on; empty when it says none.
        alpha: numerator of the scaling.
        alphas: other numerators, by a pattern of module names.
        root: divide by the square root of the rank, not by the rank.
        transposed: weights of the base are stored as inputs by outputs.
    """

    base: str
    alpha: float
    alphas: Mapping[str, float] = field(default_factory=dict)
    root: bool = False
    transposed: bool = False

    def scaling(self, module: str, rank: int) -> float:
        """The factor of ``B @ A`` for a module."""
        alpha = next((value for key, value in self.alphas.items() if _fits(key, module)), self.alpha)
        return alpha / math.sqrt(rank) if self.root else alpha / rank


def parse_config(data: bytes, limits: Limits = LIMITS) -> AdapterConfig:
    """Read ``adapter_config.json``.

    Raises:
        FormatError: not a LoRA adapter, or one whose merging is not known.
        LimitError: too large.
    """
    document = parse_object(data, ADAPTER_CONFIG, max_bytes=limits.small_file_bytes)
    kind = document.get("peft_type")
    if kind != "LORA":
        raise _refused(f"an adapter of the kind {shown(kind)}; LoRA can be merged here")
    for key, value in document.items():
        # An option of a later version may change what merging means; at its default it is off.
        if key not in _NEUTRAL and value:
            raise _refused(f"an adapter with {shown(key)[1:-1]}")
    begin = document.get("init_lora_weights")
    if begin not in _BEGINNINGS:
        raise _refused(f"an adapter that began as {shown(begin)}, which changes the base model too")
    if document.get("bias", "none") != "none":
        raise _refused("an adapter that trained biases too")
    base = document.get("base_model_name_or_path")
    alphas = document.get("alpha_pattern") or {}
    if not isinstance(alphas, dict) or not isinstance(base, str | None):
        raise _refused("a malformed configuration")
    return AdapterConfig(
        base=base or "",
        alpha=_alpha(document),
        alphas={_pattern(key): _number(value) for key, value in alphas.items()},
        root=bool(document.get("use_rslora")),
        transposed=bool(document.get("fan_in_fan_out")),
    )


def _fits(pattern: str, module: str) -> bool:
    return bool(re.match(rf"(.*\.)?({pattern})$", module))


def _pattern(text: str) -> str:
    # A pattern with many repetitions could take longer than anybody waits.
    if len(text) > _PATTERN_LENGTH or len(_REPETITIONS.findall(text)) > _MAX_REPETITIONS:
        raise _refused(f"the pattern {shown(text)} in alpha_pattern is too complex")
    try:
        re.compile(text)
    except re.error as error:
        raise _refused(f"the pattern {shown(text)} in alpha_pattern is malformed") from error
    return text


def _alpha(document: Mapping[str, Any]) -> float:
    if document.get("lora_alpha") is None:
        raise _refused("lora_alpha, which scales the adapter, is missing")
    return _number(document["lora_alpha"])


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(f"the scaling {shown(value)} is no number")
    return float(value)


def _refused(fault: str) -> FormatError:
    return FormatError(f"{ADAPTER_CONFIG}: {fault}", hint=MERGE)
