"""What names and shapes tell: the role and layer of a tensor, and the channels and neurons that matrices share."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from maskreg.errors import UsageError
from maskreg.words import natural

# Which tensors are measured: by role, by name within the layer, and by layer; fused matrices are split if need be.
#
# ``--role`` and ``--layers`` take these words, which mean the same for every command. Example: in a model whose layers
# have a fused ``qkv_proj``, ``--role q_proj,o_proj --layers 0-11`` selects of each of the first twelve layers the
# leading rows of ``qkv_proj``, and ``o_proj``.

PRESETS = {"qkvo": ("q_proj", "k_proj", "v_proj", "o_proj")}
"""Words that stand for several. ``qkvo`` is the set of "On the Geometry of On-Policy Distillation" (appendix C.3): the
four attention matrices of every layer, 144 in a model of 36 layers."""

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Matrices that are stored as one, by rows one after another. Layouts that mix the rows of heads (``query_key_value``,
``Wqkv``, ``c_attn``) are no such, and stay whole."""

_WORD = re.compile(r"[A-Za-z_][\w-]*")
_LAYERS = re.compile(r"(?:(?P<tower>[A-Za-z_]\w*(?:\.\w+)*)\.)?(?P<first>\d{1,6})(?:-(?P<last>\d{1,6}))?")

Shape = tuple[int, ...]


class Part(NamedTuple):
    """Whole rows ``[start, stop)`` of a tensor: all of them, or the rows of one fused matrix.

    ``name``: what the part is called where it is stored alone; for all rows, the tensor's name.
    """

    name: str
    tensor: str
    start: int
    stop: int


class Layers(NamedTuple):
    """Consecutive layers of a tower; ``tower`` is empty for the language model."""

    tower: str
    first: int
    last: int

    def __str__(self) -> str:
        span = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.tower}.{span}" if self.tower else span

    def holds(self, layer: str) -> bool:
        """Whether a layer, as :func:`layer_of` says it, is one of these."""
        tower, _, number = layer.rpartition(".")
        return bool(number) and tower == self.tower and self.first <= int(number) <= self.last


@dataclass(frozen=True)
class Selection:
    """Tensors of some roles (``attention``) or names within the layer (``q_proj``), in some layers."""

    roles: tuple[str, ...] = ()
    layers: tuple[Layers, ...] = ()

    @classmethod
    def parse(cls, roles: Sequence[str] = (), layers: str = "") -> Selection:
        """Parse words, each of one role or several, and ranges of layers."""
        words = [word.strip() for text in roles for word in text.split(",")]
        if wrong := [word for word in words if not _WORD.fullmatch(word)]:
            raise UsageError(f"{wrong[0]!r} is no role", hint="name one such as attention or q_proj")
        chosen = dict.fromkeys(name for word in words for name in PRESETS.get(word, (word,)))
        ranges = [_layers(text.strip()) for text in layers.split(",")] if layers else []
        return cls(tuple(chosen), tuple(ranges))

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.roles or self.layers)

    def __str__(self) -> str:
        """As a sentence says it: ``q_proj,o_proj in layers 0-11``."""
        return " in ".join(filter(None, (",".join(self.roles), _named(*self.layers))))

    def to_json(self) -> dict[str, Any]:
        """The words, for a lineage recipe and for ``--json``."""
        return {"roles": list(self.roles), "layers": ",".join(map(str, self.layers))}

    def parts(self, tensors: Mapping[str, Shape]) -> tuple[Part, ...]:
        """What of some tensors, by name their shape, is selected, in their order.

        A tensor that fuses several matrices is split where one of them is named and the tensor is not.
        """
        parts = tuple(part for name in tensors for part in self._parts(name, tensors))
        if self:
            self._require_all(parts, tensors)
        return parts

    def _parts(self, name: str, tensors: Mapping[str, Shape]) -> Iterator[Part]:
        if self.layers and not any(layers.holds(layer_of(name)) for layers in self.layers):
            return
        rows = next(iter(tensors[name]), 1)
        if not self.roles or any(_is(name, word) for word in self.roles):
            yield Part(name, name, 0, rows)
            return
        for fused, words in FUSED.items():
            if fused in name.split(".") and len(tensors[name]) in (1, 2) and set(words) & set(self.roles):
                for part in _split(name, fused, tensors):
                    if any(_is(part.name, word) for word in self.roles):
                        yield part

    def _require_all(self, parts: Sequence[Part], tensors: Mapping[str, Shape]) -> None:
        for word in self.roles:
            if not any(_is(part.name, word) for part in parts):
                preset = next((name for name, words in PRESETS.items() if set(words) <= set(self.roles)), "")
                of = f", one of {preset}" if preset and word in PRESETS[preset] else ""
                raise UsageError(
                    f"no tensor{self._where()} has the role or name {word!r}{of}", hint=_near(word, tensors)
                )
        for layers in self.layers:
            if not any(layers.holds(layer_of(part.tensor)) for part in parts):
                known = sorted({layer for name in tensors if (layer := layer_of(name))}, key=natural)
                hint = f"choose layers from {known[0]} to {known[-1]}" if known else "leave it out"
                raise UsageError(f"nothing that was selected is in {_named(layers)}", hint=hint)

    def _where(self) -> str:
        return f" of {_named(*self.layers)}" if self.layers else ""


ALL = Selection()
"""Leaves nothing out."""


def _is(name: str, word: str) -> bool:
    return role_of(name) == word if word in ROLES else word in name.split(".")


def _named(*layers: Layers) -> str:
    several = len(layers) > 1 or any(each.first < each.last for each in layers)
    return f"layer{'s' if several else ''} {','.join(map(str, layers))}" if layers else ""


def _layers(text: str) -> Layers:
    match = _LAYERS.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no range of layers", hint="write 0-11, or 0,35,visual.0-3")
    first = int(match["first"])
    last = int(match["last"] or first)
    if last < first:
        raise UsageError(f"the layers {text} end before they begin", hint=f"write {last}-{first}")
    return Layers(match["tower"] or "", first, last)


def _near(word: str, tensors: Mapping[str, Shape]) -> str:
    names = dict.fromkeys(part for name in tensors for part in name.split(".") if _WORD.fullmatch(part))
    roles = [role for role in ROLES if any(role_of(name) == role for name in tensors)]
    if word in names:
        return "it is in other layers: choose those, or all layers"
    near = difflib.get_close_matches(word, [*roles, *names], n=1)
    there = f"the roles here are {', '.join(roles)}"
    return f"choose {near[0]}" if near else there


def _split(name: str, fused: str, tensors: Mapping[str, Shape]) -> Iterator[Part]:
    """The matrices that a tensor fuses; see :func:`_sizes`."""
    start = 0
    for word, size in zip(FUSED[fused], _sizes(name, fused, tensors), strict=True):
        yield Part(_renamed(name, fused, word), name, start, start + size)
        start += size


def _sizes(name: str, fused: str, tensors: Mapping[str, Shape]) -> tuple[int, ...]:
    """Rows of each of the matrices that a tensor fuses.

    With h query heads, g key and value heads of size d (grouped-query attention), ``qkv_proj`` has (h + 2 g) d rows,
    and its neighbor ``o_proj`` h d columns. So their shapes give what the model's config says. Example: 32 and 8 heads
    of 128, 6,144 rows and 4,096 columns: 4,096 + 1,024 + 1,024.
    """
    rows = tensors[name][0]
    if fused == "gate_up_proj":
        if rows % 2:
            raise UsageError(
                f"{name} has {rows} rows, which are not two halves", hint=f"choose {fused}, which is whole"
            )
        return rows // 2, rows // 2
    neighbor = f"{_renamed(name, fused, 'o_proj').rpartition('.')[0]}.weight"
    queries = (tensors.get(neighbor) or (0, 0))[-1]
    keys, rest = divmod(rows - queries, 2)
    if not 0 < keys <= queries or rest or queries % keys:
        raise UsageError(
            f"{name} cannot be split into q, k and v: that takes {neighbor}, with as many columns as there are rows of "
            "queries",
            hint=f"choose {fused}, which is whole",
        )
    return queries, keys, keys


def _renamed(name: str, fused: str, word: str) -> str:
    return ".".join(word if part == fused else part for part in name.split("."))


ROLES = ("ffn", "attention", "embedding", "lm_head", "norm", "router", "other")
"""Every role, in the order of summaries."""

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"})
"""Parts of a name that torch.compile, FSDP and other wrappers add anywhere in it."""

FRONT = frozenset({"module"})
"""Parts that wrappers add at the front of every name; within a name they can be a model's own."""

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
    # ``output.weight`` of the original Llama layout, and the shared head of DeepSeek's multi-token prediction layer.
    if parts[:-1] in (["output"], ["model", "output"]) or parts[-3:-1] == ["shared_head", "head"]:
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
    """The module of a tensor: its name within its layer, without ``.weight``, with ``*`` for each number."""
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


_MARKS = WRAPPERS | FRONT


def _segments(name: str) -> list[str]:
    return [part for part in name.split(".") if part not in _MARKS]


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


# Matrices that write into the stream; all others read from it.
_WRITER = re.compile(r"o_proj|out_proj|down_proj|wo|w2|c_proj|fc_?2|fc_out|ff_out|attn_out|dense|dense_4h_to_h")

# Matrices that read from it beside a c_proj. Their shape says whether they are GPT-2's Conv1D, which is [in, out].
_BESIDE_C_PROJ = re.compile(r"c_attn|c_fc")


class Stream(NamedTuple):
    """The residual stream of a model: its channels, 0 where unknown, and whether matrices are stored ``[in, out]``."""

    width: int
    transposed: bool = False


class Channels(NamedTuple):
    """The axis on which a matrix has the channels of the residual stream; in a stack, rows repeat the stream's."""

    axis: Literal["rows", "columns"]
    width: int


class Neurons(NamedTuple):
    """Where a matrix has the neurons (hidden units) of an FFN, whose matrices' names begin with ``ffn``."""

    ffn: str
    axis: Literal["rows", "columns"]
    width: int


class Shared(NamedTuple):
    """What a matrix has in common with others: channels of the stream and, on the other axis, neurons of its FFN."""

    channels: Channels | None = None
    neurons: Neurons | None = None


ALONE = Shared()
"""Nothing in common with others."""


def stream_of(tensors: Iterable[tuple[str, str, str, Sequence[int]]]) -> Stream:
    """The residual stream that a model's matrices read from and write into.

    ``tensors``: of each its name, its layer, its role and its shape; the largest embedding is the tokens'.
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
    """
    channels = channels_of(name, layer, shape, stream)
    if channels is None or role != "ffn" or len(shape) != 2:
        return Shared(channels)
    ffn = ".".join(name.removesuffix(".weight").split(".")[:-1])
    in_rows = channels.axis == "columns"
    return Shared(channels, Neurons(ffn, "rows" if in_rows else "columns", shape[not in_rows]))
