"""What names and shapes tell: the role and layer of a tensor, and the channels and neurons that matrices share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

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
    """The layer that a tensor belongs to."""
    parts = _segments(name)
    for index, (part, number) in enumerate(itertools.pairwise(parts)):
        if part.lower() in _LAYER_LISTS and number.isascii() and number.isdigit():
            return ".".join([*_tower(parts[:index]), number])
    return ""


def module_of(name: str, layer: str) -> str:
    """The module that a tensor belongs to: its name within its layer, without ``.weight``, with ``*`` for each number.
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


# Matrices that write into the stream; all others read from it.
_WRITER = re.compile(r"o_proj|out_proj|down_proj|wo|w2|c_proj|fc_?2|fc_out|ff_out|attn_out|dense|dense_4h_to_h")

# Matrices that read from it beside a c_proj. Their shape says whether they are GPT-2's Conv1D, which is [in, out].
_BESIDE_C_PROJ = re.compile(r"c_attn|c_fc")


class Stream(NamedTuple):
    """The residual stream of a model.

    Attributes:
        width: its channels; 0 where unknown.
        transposed: whether matrices of its layers are stored ``[in, out]``.
    """

    width: int
    transposed: bool = False


class Channels(NamedTuple):
    """Where a matrix has the channels of the residual stream.

    Attributes:
        axis: of the tensor as a matrix of its last axis.
        width: of the stream; in a stack of matrices, rows repeat its channels.
    """

    axis: Literal["rows", "columns"]
    width: int


class Neurons(NamedTuple):
    """Where a matrix has the neurons (hidden units) of its FFN.

    Attributes:
        ffn: what the names of the FFN's matrices begin with.
        axis: of the tensor as a matrix.
        width: neurons of the FFN.
    """

    ffn: str
    axis: Literal["rows", "columns"]
    width: int


class Shared(NamedTuple):
    """What a matrix has in common with other tensors, on each axis.

    Attributes:
        channels: of the residual stream; None where it has none.
        neurons: of its FFN, on the other axis; None where it has none.
    """

    channels: Channels | None = None
    neurons: Neurons | None = None


ALONE = Shared()
"""Nothing in common with others."""


def stream_of(tensors: Iterable[tuple[str, str, str, Sequence[int]]]) -> Stream:
    """The residual stream that a model's matrices read from and write into.

    Args:
        tensors: of each its name, its layer, its role and its shape; the largest embedding is the tokens'.
    """
    matrices = [tensor for tensor in tensors if len(tensor[3]) == 2]
    tables = [shape for _, layer, role, shape in matrices if role == "embedding" and not layer]
    width = max(tables, key=lambda shape: shape[0] * shape[1])[1] if tables else 0
    return Stream(
        width,
        any(
            layer.isdigit() and shape[0] == width != shape[1] and any(map(_BESIDE_C_PROJ.fullmatch, name.split(".")))
            for name, layer, _, shape in matrices
        ),
    )


def channels_of(name: str, layer: str, shape: Sequence[int], stream: Stream) -> Channels | None:
    """Where a tensor has the channels; None for a vector, another tower, and where no axis is as long.

    Example: in a stream of 256, an ``up_proj`` ``[768, 256]`` has them in its columns, a ``down_proj`` ``[256, 768]``
    in its rows. Of square matrices the name decides: an ``o_proj`` writes into the stream, with its rows, and GPT-2's
    ``c_proj``, which is stored transposed, with its columns.

    Args:
        name: of the tensor.
        layer: what :func:`~maskreg.checkpoint.roles.layer_of` says.
        shape: of the tensor.
        stream: of the model.
    """
    width = stream.width
    if len(shape) < 2 or width < 2 or (layer and not layer.isdigit()):
        return None
    in_rows, in_columns = shape[-2] == width, shape[-1] == width
    if in_rows and in_columns:
        writes = any(_WRITER.fullmatch(part) for part in name.split("."))
        in_columns = writes == (stream.transposed and layer != "")
    if in_columns:
        return Channels("columns", width)
    return Channels("rows", width) if in_rows else None


def shared_of(name: str, layer: str, role: str, shape: Sequence[int], stream: Stream) -> Shared:
    """What a tensor has in common with others: channels, and on the other axis of an FFN's matrix its neurons.

    Example: neuron 5 is row 5 of a ``gate_proj`` and of the ``up_proj`` beside it, and column 5 of their ``down_proj``.
    A stack of experts has no neurons, as its rows or columns are of several FFNs.

    Args:
        name: of the tensor.
        layer: what :func:`~maskreg.checkpoint.roles.layer_of` says.
        role: what :func:`~maskreg.checkpoint.roles.role_of` says.
        shape: of the tensor.
        stream: of the model.
    """
    channels = channels_of(name, layer, shape, stream)
    if channels is None or role != "ffn" or len(shape) != 2:
        return Shared(channels)
    ffn = ".".join(name.removesuffix(".weight").split(".")[:-1])
    in_rows = channels.axis == "columns"
    return Shared(channels, Neurons(ffn, "rows" if in_rows else "columns", shape[not in_rows]))
