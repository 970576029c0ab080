"""The role and the layer of a tensor, read from its name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

ROLES = ("ffn", "attention", "embedding", "lm_head", "norm", "router", "other")
"""Every role, in the order of summaries."""

# Added by training frameworks, anywhere in a name.
_WRAPPERS = {"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "_forward_module", "module"}

# Containers of every language model: they do not distinguish towers.
_NEUTRAL = {"model", "base_model", "language_model", "text_model", "transformer", "gpt_neox", "decoder"}
_TOWERS = {
    "visual": "visual", "vision_tower": "visual", "vision_model": "visual", "vision_encoder": "visual",
    "vision": "visual", "vit": "visual", "vpm": "visual",
    "audio": "audio", "audio_tower": "audio", "audio_model": "audio", "audio_encoder": "audio",
}  # fmt: skip
# Between a tower and its layers these add nothing.
_WITHIN_TOWER = _NEUTRAL | {"encoder", "trunk"}
_LAYER_LISTS = {"layers", "layer", "h", "blocks", "block", "resblocks"}

_NORM = re.compile(r".*norm.*|ln|ln_.*|ln\d+|.*_ln")
_HEAD = re.compile(r"lm_head|embed_out")
# Projectors between towers, patch convolutions, rotary tables: matched early, because some contain an mlp or embedding.
_OTHER = re.compile(
    r".*merger.*|.*projector.*|connector|aligner|resampler|embed_vision|embed_audio|.*patch.*|rotary.*|inv_freq"
)
_ATTENTION = re.compile(r".*attn.*|.*attention.*|[qkvo]_proj|qkv|qkv_proj|query_key_value")
_ROUTER = re.compile(r"gate|router|shared_expert_gate|e_score_correction_bias")
_FFN = re.compile(
    r".*mlp.*|feed_?forward|ffn|.*experts?|block_sparse_moe|densereludense"
    r"|(gate|up|down|gate_up)_proj.*|w[123]|fc_?\d|c_fc|fc_in|fc_out|dense_h_to_4h|dense_4h_to_h"
)
_EMBEDDING = re.compile(r"wte|wpe|.*embed.*")

# The first role whose pattern matches any part of the name wins. So the order matters:
#     self_attn.q_norm    norm, before attention
#     self_attn.gate      attention, before router
#     mlp.gate            router, before ffn
#     mlp.gate_proj       ffn: router's pattern must match a whole part
_TABLE = (
    ("norm", _NORM),
    ("lm_head", _HEAD),
    ("other", _OTHER),
    ("attention", _ATTENTION),
    ("router", _ROUTER),
    ("ffn", _FFN),
    ("embedding", _EMBEDDING),
)


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def role_of(name: str) -> str:
    """The role of a tensor: one of :data:`ROLES`.

    A norm is a norm wherever it stands; a router is not part of the FFN; a fused qkv is attention. Projectors and
    mergers between towers, patch convolutions and rotary tables are ``other``.
    """
    parts = _segments(name.lower())
    if _is_plain_head(parts):
        return "lm_head"
    for role, pattern in _TABLE:
        if any(map(pattern.fullmatch, parts)):
            return role
    return "other"


def layer_of(name: str) -> str:
    """The layer that a tensor belongs to.

    Returns:
        ``3`` in the language model, ``visual.3`` in a vision tower, ``NAME.3`` in a tower of another name; empty
        outside the layers.
    """
    parts = _segments(name)
    for index, (part, number) in enumerate(itertools.pairwise(parts)):
        if part.lower() in _LAYER_LISTS and number.isascii() and number.isdigit():
            return ".".join([*_tower(parts[:index]), number])
    return ""


def module_of(name: str, layer: str) -> str:
    """The module that a tensor belongs to: its name within its layer, without ``.weight``, with ``*`` for each number.

    Args:
        name: the tensor's name.
        layer: what :func:`layer_of` says; outside the layers, a tensor is a module of its own.
    """
    inner = name
    if layer:
        number = layer.rpartition(".")[2]
        inner = re.split(rf"\.{number}(?=\.|$)", name, maxsplit=1)[-1].strip(".")
    return _NUMBER.sub("*", inner.removesuffix(".weight")) or name


GROUPS: Mapping[str, Callable[[str], str]] = {
    "role": role_of,
    "layer": layer_of,
    "module": lambda name: module_of(name, layer_of(name)),
    "tensor": lambda name: name,
}
"""What figures of tensors are grouped by, and the group of a tensor of that name; empty for one in none."""


def _segments(name: str) -> list[str]:
    return [part for part in name.split(".") if part not in _WRAPPERS]


def _tower(parts: list[str]) -> list[str]:
    label: list[str] = []
    in_tower = False
    for part in parts:
        tower = _TOWERS.get(part)
        if tower:
            in_tower = True
            if tower not in label:
                label.append(tower)
        elif part not in (_WITHIN_TOWER if in_tower else _NEUTRAL):
            label.append(part)
    return label


def _is_plain_head(parts: list[str]) -> bool:
    # ``output.weight`` of the original Llama layout, and the shared head of DeepSeek's multi-token prediction layer.
    return parts[:-1] in (["output"], ["model", "output"]) or parts[-3:-1] == ["shared_head", "head"]
