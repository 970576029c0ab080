"""Which tensors are measured: by role, by name within the layer, and by layer; fused matrices are split if need be.

``--role`` and ``--layers`` take these words, which mean the same for every command. Example: in a model whose
layers have a fused ``qkv_proj``, ``--role q_proj,o_proj --layers 0-11`` selects of each of the first twelve layers the
leading rows of ``qkv_proj``, and ``o_proj``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from maskreg.checkpoint.roles import ROLES, layer_of, role_of
from maskreg.errors import UsageError
from maskreg.words import natural

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
    """Whole rows of a tensor: all of them, or the rows of one fused matrix.

    Attributes:
        name: what the part is called where it is stored alone; for all rows, the tensor's name.
        tensor: name of the tensor.
        start, stop: its rows are ``[start, stop)``.
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
    """Tensors that have one of some roles or names, and lie in one of some layers.

    Attributes:
        roles: roles (``attention``) and names within the layer (``q_proj``); empty for all.
        layers: layers; empty for all tensors, those outside every layer included.
    """

    roles: tuple[str, ...] = ()
    layers: tuple[Layers, ...] = ()

    @classmethod
    def parse(cls, roles: Sequence[str] = (), layers: str = "") -> Selection:
        """Parse the words of ``--role`` and ``--layers``."""
        words = [word.strip() for text in roles for word in text.split(",")]
        if wrong := [word for word in words if not _WORD.fullmatch(word)]:
            raise UsageError(f"{wrong[0]!r} is no role", hint="write --role attention, or --role q_proj,o_proj")
        chosen = dict.fromkeys(name for word in words for name in PRESETS.get(word, (word,)))
        ranges = [_layers(text.strip()) for text in layers.split(",")] if layers else []
        return cls(tuple(chosen), tuple(ranges))

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.roles or self.layers)

    def __str__(self) -> str:
        """As the options say it: ``--role q_proj,o_proj --layers 0-11``."""
        options = [("--role", self.roles), ("--layers", self.layers)]
        return " ".join(f"{option} {','.join(map(str, values))}" for option, values in options if values)

    def to_json(self) -> dict[str, Any]:
        """The words, for a lineage recipe and for ``--json``."""
        return {"roles": list(self.roles), "layers": ",".join(map(str, self.layers))}

    def parts(self, tensors: Mapping[str, Shape]) -> tuple[Part, ...]:
        """What of some tensors is selected, in their order.

        A tensor that fuses several matrices is split where one of them is named and the tensor is not.

        Args:
            tensors: the shape of each, by name.
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
                hint = f"layers go from {known[0]} to {known[-1]}: --layers {known[-1]}" if known else "leave it out"
                raise UsageError(f"nothing that was selected is in layer {layers}", hint=hint)

    def _where(self) -> str:
        return f" of layers {','.join(map(str, self.layers))}" if self.layers else ""


ALL = Selection()
"""Leaves nothing out."""


def _is(name: str, word: str) -> bool:
    return role_of(name) == word if word in ROLES else word in name.split(".")


def _layers(text: str) -> Layers:
    match = _LAYERS.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no range of layers", hint="write --layers 0-11, or --layers 0,35,visual.0-3")
    first = int(match["first"])
    last = int(match["last"] or first)
    if last < first:
        raise UsageError(f"the layers {text} end before they begin", hint=f"write --layers {last}-{first}")
    return Layers(match["tower"] or "", first, last)


def _near(word: str, tensors: Mapping[str, Shape]) -> str:
    names = dict.fromkeys(part for name in tensors for part in name.split(".") if _WORD.fullmatch(part))
    roles = [role for role in ROLES if any(role_of(name) == role for name in tensors)]
    if word in names:
        return "it is in other layers: choose those, or leave --layers out"
    near = difflib.get_close_matches(word, [*roles, *names], n=1)
    there = f"the roles here are {', '.join(roles)}"
    return f"--role {near[0]}" if near else there


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
            raise UsageError(f"{name} has {rows} rows, which are not two halves", hint=f"--role {fused}")
        return rows // 2, rows // 2
    neighbor = f"{_renamed(name, fused, 'o_proj').rpartition('.')[0]}.weight"
    queries = (tensors.get(neighbor) or (0, 0))[-1]
    keys, rest = divmod(rows - queries, 2)
    if not 0 < keys <= queries or rest or queries % keys:
        raise UsageError(
            f"{name} cannot be split into q, k and v: that takes {neighbor}, with as many columns as there are rows of "
            "queries",
            hint=f"--role {fused} takes it whole",
        )
    return queries, keys, keys


def _renamed(name: str, fused: str, word: str) -> str:
    return ".".join(word if part == fused else part for part in name.split("."))
