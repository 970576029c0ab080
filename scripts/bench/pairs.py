"""The pairs of checkpoints that the benchmark codes, generated or read from disk; each is held in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import maskreg
from maskreg.codec.base import Codes
from maskreg.flow.extract.pairing import pair_up
from maskreg.tensors.info import blocks_of

Floats = npt.NDArray[np.float32]

WEIGHT_STD = 0.02
"""Of generated weights: large models are initialized with it and stay near it."""

SPREAD = 0.4
"""Sigma of the log-normal scales of rows and columns of an update."""

SAMPLED = 1 << 20
"""Coordinates on which an update's size is determined."""


@dataclass(frozen=True)
class Leaf:
    """One tensor of a pair; both sides are uint16 ``[n]``, in C order."""

    name: str
    shape: tuple[int, ...]
    source: Codes
    target: Codes


@dataclass(frozen=True)
class Block:
    """The input of one call of a codec: a span of one tensor.

    Attributes:
        source: uint16 ``[n]``, known to the decoder.
        target: uint16 ``[n]``, to be coded.
        shape: of the whole tensor.
        start: of the span, in the flat tensor.
    """

    source: Codes
    target: Codes
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class CodecPair:
    """Two checkpoints, as far as a delta codec sees them.

    Attributes:
        name: short, for tables and plots.
        what: how it was made, in one line.
        leaves: tensors of 16-bit floats that both sides have.
    """

    name: str
    what: str
    leaves: tuple[Leaf, ...]

    @property
    def params(self) -> int:
        """Coordinates of one checkpoint."""
        return sum(leaf.source.size for leaf in self.leaves)

    @property
    def density(self) -> float:
        """Coordinates whose bits differ / coordinates."""
        return sum(int(np.count_nonzero(leaf.source != leaf.target)) for leaf in self.leaves) / self.params

    def blocks(self) -> Iterator[Block]:
        """The spans into which maskreg divides tensors."""
        for leaf in self.leaves:
            for start, stop in blocks_of(leaf.source.size):
                yield Block(leaf.source[start:stop], leaf.target[start:stop], leaf.shape, start)


@dataclass(frozen=True)
class PairSpec:
    """How one generated pair is made.

    Attributes:
        name: of the pair.
        density: share of coordinates to move.
        spread: sigma of a log-normal scale for each coordinate of the update; 0 for none.
        masters: whether training kept fp32 weights before the source was written, as between two steps of one run.
            Then an update far below the spacing of bf16 values moves a few coordinates over a rounding boundary.
    """

    name: str
    density: float
    spread: float = 0.0
    masters: bool = False


SPECS = (
    PairSpec("sft", 0.93, 1.75),
    PairSpec("opd", 0.48),
    PairSpec("rlvr", 0.23),
    PairSpec("sync", 0.01, masters=True),
)
"""What kinds of post-training do to a bf16 model: fine-tuning, on-policy distillation, reinforcement learning with
verifiable rewards, and a single step of such a run."""


def shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    """One layer of a Qwen3-like model of that width, with its embedding; 1536 gives 38 million parameters."""
    ffn, query, key, layer = hidden * 8 // 3, hidden * 4 // 3, hidden * 2 // 3, "model.layers.0"
    return {
        "model.embed_tokens.weight": (4 * hidden, hidden),
        f"{layer}.input_layernorm.weight": (hidden,),
        f"{layer}.mlp.down_proj.weight": (hidden, ffn),
        f"{layer}.mlp.gate_proj.weight": (ffn, hidden),
        f"{layer}.mlp.up_proj.weight": (ffn, hidden),
        f"{layer}.post_attention_layernorm.weight": (hidden,),
        f"{layer}.self_attn.k_norm.weight": (128,),
        f"{layer}.self_attn.k_proj.weight": (key, hidden),
        f"{layer}.self_attn.o_proj.weight": (hidden, query),
        f"{layer}.self_attn.q_norm.weight": (128,),
        f"{layer}.self_attn.q_proj.weight": (query, hidden),
        f"{layer}.self_attn.v_proj.weight": (key, hidden),
        "model.norm.weight": (hidden,),
    }


def generated(spec: PairSpec, hidden: int, seed: int = 0) -> CodecPair:
    """Independent normal weights and an independent update.

    The update is normal noise times a log-normal scale for each row and each column. Its size is chosen so that the
    given share of coordinates moves. The target is the weights plus the update, rounded to bf16.
    """
    rng = np.random.default_rng(seed)
    by_name = shapes(hidden)
    weights = {name: _weights(shape, rng) for name, shape in by_name.items()}
    if not spec.masters:
        weights = {name: widened(to_bf16(values)) for name, values in weights.items()}
    updates = {name: _update(shape, spec.spread, rng).reshape(-1) for name, shape in by_name.items()}
    size = _size_for(spec.density, weights, updates)
    leaves = [
        Leaf(name, shape, to_bf16(weights[name]), _moved(weights[name], updates[name], size))
        for name, shape in by_name.items()
    ]
    what = f"generated: normal weights, normal update scaled by row and column, seed {seed}"
    return CodecPair(f"generated {spec.name}", what, tuple(leaves))


def given(source: Path | str, target: Path | str, name: str = "", what: str = "two checkpoints on disk") -> CodecPair:
    """Two checkpoints on disk, read whole: the tensors that maskreg would code, tied ones once."""
    with maskreg.open_checkpoint(source) as before, maskreg.open_checkpoint(target) as after:
        pairs, _ = pair_up(before, after, mask_only=False, allow_mismatch=True)
        leaves = [
            Leaf(pair.name, pair.source.shape, before.read(pair.name, 0, n), after.read(pair.name, 0, n))
            for pair in pairs
            # Without targets that would have to be cast first.
            if pair.stored_as.coded
            and pair.source
            and pair.target
            and pair.target.item_bytes == 2
            and (n := pair.numel)
        ]
    if not leaves:
        raise SystemExit(f"{source} and {target} share no tensor of 16-bit floats")
    return CodecPair(name or f"given {Path(target).name}", what, tuple(leaves))


def to_bf16(values: Floats) -> Codes:
    """Finite values rounded to bf16, ties to even."""
    bits = values.reshape(-1).view(np.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16)


def widened(codes: Codes) -> Floats:
    """The same values as fp32 ``[n]``."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def _weights(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    noise: Floats = rng.standard_normal(math.prod(shape), np.float32)
    noise *= np.float32(WEIGHT_STD)
    if len(shape) == 1:
        # Gains of norms are near 1, where bf16 hides small updates.
        noise += np.float32(1)
    return noise


def _update(shape: tuple[int, ...], spread: float, rng: np.random.Generator) -> Floats:
    noise = rng.standard_normal(shape, np.float32)
    for axis, length in enumerate(shape):
        scale = np.exp(SPREAD * rng.standard_normal(length)).astype(np.float32)
        noise *= scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    if spread:
        noise *= np.exp(np.float32(spread) * rng.standard_normal(shape, np.float32))
    return noise


def _moved(weights: Floats, update: Floats, size: float) -> Codes:
    return to_bf16(weights + np.multiply(update, size, dtype=np.float32))


def _size_for(density: float, weights: dict[str, Floats], updates: dict[str, Floats]) -> float:
    """Factor of the update at which a share ``density`` of the coordinates moves, by bisection."""
    step = max(1, sum(values.size for values in weights.values()) // SAMPLED)
    before = np.concatenate([values[::step] for values in weights.values()])
    update = np.concatenate([values[::step] for values in updates.values()])
    codes = to_bf16(before)
    low, high = math.log(1e-12), math.log(1e2)
    for _ in range(40):
        middle = (low + high) / 2
        moved = int(np.count_nonzero(_moved(before, update, math.exp(middle)) != codes))
        low, high = (middle, high) if moved < density * codes.size else (low, middle)
    return math.exp(low)
