"""``step1``: how far each code went, as a token under a context that the source gives. FORMAT.md has every bit."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.blocks import SPARE_BYTES, STATE_BYTES, classify_all, decode_runs, encode_runs
from maskreg.codec.contexts import MAX_RANK, PLAIN_CLASSES, SIZES, TILE, Contexts, rows_of
from maskreg.codec.costs import plain_window
from maskreg.codec.factors import fit_factors, size_bounds
from maskreg.codec.gpu import launcher
from maskreg.codec.grid import FLAT, Grid
from maskreg.codec.model import Model, pack_model, side_bits, unpack_model
from maskreg.codec.rans import LANES, SLOTS, TOKENS, fill_decoding, spans_of
from maskreg.codec.scales import fit_scales
from maskreg.codec.steps import MIDDLE, count_keys, tokens_of
from maskreg.codec.tables import MAX_TABLES, build_tables
from maskreg.errors import CorruptError
from maskreg.jit import is_compiled
from maskreg.tensors.blocks import BLOCK_NUMEL

if TYPE_CHECKING:
    import torch

_HEAD = struct.Struct("<IBBBB")
_CODED = struct.Struct("<IIhHI")
_SAME, _RAW, _STEPS = 0, 1, 2
_SCALED = 1
_ENTRY_BYTES = 8
_MAX_BASE = 512

_SUB_BLOCKS = ((0.5, 1 << 18), (0.15, 1 << 19), (0.0, 1 << 21))
"""From how many bits a coordinate on, sub-blocks have at most so many coordinates; each costs some 60 bytes.

Two decode side by side, so their number is even where that leaves each a quarter of that."""

_LAUNCHED = 256
"""Blocks decoded in one launch at most: offsets of all their tables and bytes fit 32 bits."""

_CLEAR_GAIN = 0.9
"""Factors that leave no more than this are not compared with scales: where both could pay, factors won by far."""

_MIN_MOVED = 8
"""Moved coordinates for each row and column, below which these cost more than they save; measured."""

_MIN_LINE = 32
"""Rows and columns of the smallest matrix that scales or factors can pay for."""


class Step1:
    """Codes steps: the smallest there is where most coordinates move little, and never above the raw size."""

    name = "step1"

    def is_compiled(self, *, encode: bool) -> bool:
        """Whether the first block is coded (or decoded) at once."""
        return is_compiled(encode_runs if encode else decode_runs)

    def encode(self, context: Codes, values: Codes, grid: Grid = FLAT) -> bytes:
        """Code ``values`` for a reader who has ``context``; both uint16 ``[n]``.

        Args:
            context: bits that the reader has.
            values: bits that the reader wants.
            grid: where the coordinates lie in their matrix; the block is larger without.

        Raises:
            ValueError: the arrays differ in length, are empty or too long, or the grid's column is not in its width.
        """
        n = values.size
        if context.shape != values.shape or not 1 <= n <= BLOCK_NUMEL:
            raise ValueError(f"{context.size} and {n} values are no block; it has up to {BLOCK_NUMEL} of each")
        if grid.width and not 0 <= grid.column < grid.width:
            raise ValueError(f"no column {grid.column} in a row of {grid.width}")
        # Most blocks that differ do so early.
        if np.array_equal(context[:TILE], values[:TILE]) and np.array_equal(context, values):
            return _HEAD.pack(n, _SAME, 0, 0, 0)
        coded = _Encoder(context, values, grid).encode()
        if len(coded) < _HEAD.size + 2 * n:
            return coded
        return _HEAD.pack(n, _RAW, 0, 0, 0) + values.astype("<u2").tobytes()

    def decode(self, context: Codes, block: bytes) -> Codes:
        """The values, uint16 ``[n]``.

        Raises:
            CorruptError: the block cannot be one of ``n`` values.
        """
        if _head(block)[0] != context.size:
            raise CorruptError("block", f"its header does not describe {context.size} values")
        return self.decode_part(context, block, 0)

    def entry_numel(self, block: bytes) -> int:
        """Coordinates from one entry point to the next.

        Raises:
            CorruptError: this is no block.
        """
        n, kind, count = _head(block)
        return _sub_block(n, count) if kind == _STEPS else 1

    def decode_part(self, context: Codes, block: bytes, start: int) -> Codes:
        """A run of the values, uint16 ``[m]``.

        Raises:
            ValueError: the run does not begin and end at entry points of the block.
            CorruptError: the block is damaged.
        """
        n, kind, _ = _head(block)
        stop, every = start + context.size, self.entry_numel(block)
        if not 0 <= start <= stop <= n or start % every or (stop % every and stop != n):
            raise ValueError(f"no run [{start}, {stop}) between entry points of {n} values, one every {every}")
        if kind == _SAME:
            return context.copy()
        if kind == _RAW:
            return np.frombuffer(block, "<u2", context.size, _HEAD.size + 2 * start).astype(np.uint16)
        return Layout(block).decode(context, start)

    def decode_tensors(self, contexts: Sequence[torch.Tensor], blocks: Sequence[bytes]) -> list[torch.Tensor]:
        """Like :meth:`decode`, for several blocks at once; int16 ``[n]`` each, on a GPU or on the CPU.

        Raises:
            CorruptError: a block cannot be one of as many values as its context has.
        """
        pairs = list(zip(contexts, blocks, strict=True))
        launch = launcher(contexts[0]) if pairs else None
        if launch is None:
            return [self._by_cpu(*pair) for pair in pairs]
        # Blocks that hold no steps have nothing to decode, and damaged ones are the CPU's to refuse.
        steps = [i for i, (context, block) in enumerate(pairs) if _head(block)[:2] == (context.numel(), _STEPS)]
        by_launch: dict[int, torch.Tensor] = {}
        for first in range(0, len(steps), _LAUNCHED):
            these = steps[first : first + _LAUNCHED]
            done = launch([contexts[i] for i in these], [Layout(blocks[i]) for i in these])
            by_launch |= zip(these, done, strict=True)
        return [by_launch[i] if i in by_launch else self._by_cpu(*pair) for i, pair in enumerate(pairs)]

    def _by_cpu(self, context: torch.Tensor, block: bytes) -> torch.Tensor:
        import torch

        values = self.decode(context.cpu().numpy().view(np.uint16), block)
        return torch.from_numpy(values.view(np.int16)).to(context.device)


@dataclass(frozen=True)
class _Plan:
    """One way to code a block: its contexts and tables, the keys that they make of its tokens, and its bits."""

    model: Model
    keys: npt.NDArray[np.uint16]
    bits: float


class _Encoder:
    def __init__(self, context: Codes, values: Codes, grid: Grid) -> None:
        self._context, self._values = context, values
        n = values.size
        self._grid = grid if 0 < grid.width < 1 << 32 else Grid(n, 0)
        self._tokens = np.empty(n, np.uint8)
        self._counts = np.zeros((256, TOKENS), np.int64)
        tokens_of(context, values, self._tokens, self._counts)

    def encode(self) -> bytes:
        plan = self._best()
        contexts, tables = plan.model.contexts, plan.model.tables
        spans = spans_of(tables.freqs)[tables.of_cell].reshape(-1)
        n = self._values.size
        count = _sub_blocks(n, plan.bits / n)
        size = _sub_block(n, count)
        runs = min(count, 2)
        words, bits = np.empty((runs, min(n, size) + 8), np.uint16), np.empty((runs, min(n, size) // 2 + 2), np.uint32)
        states, places, extras = np.empty((runs, LANES), np.uint32), np.empty(runs, np.int64), np.empty(runs, np.int64)
        directory, parts = [], []
        for start in range(0, n, runs * size):
            here = slice(start, min(start + runs * size, n))
            used = -(-(here.stop - start) // size)
            encode_runs(
                self._context[here], self._values[here], plan.keys[here], size,
                spans, states[:used], words[:used], places[:used], bits[:used], extras[:used],
            )  # fmt: skip
            for run in range(used):
                directory += [words.shape[1] - places[run], extras[run]]
                parts += [states[run].astype("<u4").tobytes(), words[run, places[run] :].astype("<u2").tobytes()]
                parts.append(bits[run, : -(-extras[run] // 32)].astype("<u4").tobytes()[: -(-extras[run] // 8)])
        model = pack_model(plan.model)
        head = _HEAD.pack(n, _STEPS, count, contexts.rank, _SCALED if contexts.scaled else 0)
        coded = _CODED.pack(*contexts.grid, contexts.base, len(tables.freqs), len(model))
        return b"".join([head, coded, model, np.array(directory, "<u4").tobytes(), *parts])

    def _best(self) -> _Plan:
        """The smallest of what exponents alone give and what factors or scales add to them."""
        first, bits = plain_window(self._counts, PLAIN_CLASSES)
        plain = Contexts(self._grid, 2 * first)
        best: _Plan | None = None
        n, width = self._values.size, self._grid.width
        rows = rows_of(self._grid, n)
        moved = n - int(self._counts[:, MIDDLE].sum())
        if min(rows, width) >= _MIN_LINE and width <= n and moved >= _MIN_MOVED * (rows + width):
            where = {"rows": rows, "width": width, "column": self._grid.column}
            factors = fit_factors(self._context, self._tokens, self._counts, **where)
            if factors:
                one, other = factors
                bounds = size_bounds(one, other)
                best = self._plan(replace(plain, row_factors=one, column_factors=other, bounds=bounds))
            if best is None or best.bits > _CLEAR_GAIN * bits:
                one, other = fit_scales(self._context, self._tokens, self._counts, **where)
                # Half an exponent lower, because scales spread what they shift to both sides.
                base = max(0, plain.base - 1)
                scaled = self._plan(replace(plain, base=base, row_scales=one, column_scales=other))
                best = scaled if best is None or scaled.bits < best.bits else best
        return best if best and best.bits < bits else self._plan(plain)

    def _plan(self, contexts: Contexts) -> _Plan:
        n = self._values.size
        keys = np.empty(n, np.uint16)
        classify_all(self._context, self._grid.column, contexts.fields(), self._tokens, keys)
        if contexts.scaled or contexts.rank:
            counts = np.zeros((contexts.cells, TOKENS), np.int64)
            count_keys(keys, counts)
        else:
            classes = np.clip(np.arange(len(self._counts)) - contexts.base // 2, 0, PLAIN_CLASSES - 1)
            counts = np.zeros((PLAIN_CLASSES, TOKENS), np.int64)
            np.add.at(counts, classes, self._counts)
        tables, bits = build_tables(counts, SIZES if contexts.rank else 1)
        return _Plan(Model(contexts, tables), keys, bits + side_bits(contexts))


def _sub_blocks(n: int, bits: float) -> int:
    """How many sub-blocks a block of ``n`` coordinates gets when they take so many bits each."""
    most = next(most for least, most in _SUB_BLOCKS if bits >= least)
    return 2 * -(-n // (2 * most)) if n >= most // 2 else 1


def _sub_block(n: int, count: int) -> int:
    """Coordinates of each of ``count`` sub-blocks but the last, which may have fewer: a multiple of 4,096."""
    return -(-n // (count * TILE)) * TILE


def _head(block: bytes) -> tuple[int, int, int]:
    """Values, kind and number of sub-blocks, checked."""
    if len(block) < _HEAD.size:
        raise CorruptError("block", f"{len(block)} bytes are no block")
    n, kind, *rest = _HEAD.unpack_from(block)
    size = {_SAME: _HEAD.size, _RAW: _HEAD.size + 2 * n}
    if not 1 <= n <= BLOCK_NUMEL or kind > _STEPS or (kind in size and (any(rest) or len(block) != size[kind])):
        raise CorruptError("block", "its header makes no sense")
    if kind == _STEPS and len(block) > _HEAD.size + 2 * n:
        raise CorruptError("block", f"{len(block)} bytes are more than its {n} values take")
    if kind == _STEPS and not 0 <= (rest[0] - 1) * _sub_block(n, max(rest[0], 1)) < n:
        raise CorruptError("block", f"{n} values have no {rest[0]} sub-blocks")
    return n, kind, rest[0]


class Layout:
    """A coded block: its model, and where its sub-blocks are.

    Everything is checked when it is made, but for what :meth:`Step1.entry_numel` checks: that there are so many values,
    in so many sub-blocks.

    Attributes:
        n: values.
        size: coordinates of each sub-block; the last may have fewer.
        model: contexts and tables.
        block: uint8, the block and :data:`SPARE_BYTES` zeros.
        directory: int64 ``[sub-blocks, 2]``: words and extra bits of each.
        starts: int64 ``[sub-blocks + 1]``: the byte where each begins, and the end of the last.
    """

    def __init__(self, block: bytes) -> None:
        """Read all but the sub-blocks themselves.

        Raises:
            CorruptError: they do not fit together.
        """
        head = _HEAD.size + _CODED.size
        if len(block) < head:
            raise CorruptError("block", "its header is cut short")
        self.n, _, count, rank, flags = _HEAD.unpack_from(block)
        self.size = _sub_block(self.n, count)
        width, column, base, tables, model_bytes = _CODED.unpack_from(block, _HEAD.size)
        shaped = rank or flags
        if (
            rank > MAX_RANK
            or flags > _SCALED
            or not 0 <= base < _MAX_BASE
            or not 1 <= tables <= MAX_TABLES
            or not column < width
            or (shaped and width > self.n)
            or model_bytes > len(block) - head
        ):
            raise CorruptError("block", "its header makes no sense")
        # One copy, with room for reading ahead.
        self.block = np.empty(len(block) + SPARE_BYTES, np.uint8)
        self.block[: len(block)] = np.frombuffer(block, np.uint8)
        self.block[len(block) :] = 0
        packed, grid = self.block[head : head + model_bytes], Grid(width, column)
        model = unpack_model(packed, self.n, grid, base, scaled=bool(flags), rank=rank, tables=tables)
        if model is None:
            raise CorruptError("block", "its contexts or tables make no sense")
        self.model = model
        self._read_directory(block, head + model_bytes)

    def _read_directory(self, block: bytes, at: int) -> None:
        count = -(-self.n // self.size)
        if len(block) - at < _ENTRY_BYTES * count:
            raise CorruptError("block", "its directory is cut short")
        self.directory = np.frombuffer(block, "<u4", 2 * count, at).reshape(count, 2).astype(np.int64)
        sizes = STATE_BYTES + 2 * self.directory[:, 0] + -(-self.directory[:, 1] // 8)
        self.starts = at + _ENTRY_BYTES * count + np.concatenate([[0], np.cumsum(sizes)])
        if self.starts[-1] != len(block):
            raise CorruptError("block", "its sub-blocks do not fill it")

    def decode(self, context: Codes, start: int) -> Codes:
        """Values from coordinate ``start``, an entry point, for as long as the context goes.

        Raises:
            CorruptError: a sub-block does not decode.
        """
        contexts, tables = self.model.contexts, self.model.tables
        table = np.empty(len(tables.freqs) * SLOTS, np.uint32)
        fill_decoding(tables.freqs, table)
        values = np.empty(context.size, np.uint16)
        place = contexts.grid.column + start
        size = self.size
        for begin in range(0, context.size, 2 * size):
            # Two sub-blocks side by side take little longer than one.
            end = min(begin + 2 * size, context.size)
            number = (start + begin) // size
            these = slice(number, number + -(-(end - begin) // size))
            failed = decode_runs(
                context[begin:end], size, place + begin, contexts.fields(), tables.of_cell, table,
                self.block, self.starts[these], self.directory[these], values[begin:end],
            )  # fmt: skip
            if failed:
                raise CorruptError("block", f"its sub-block {number + failed - 1} does not decode")
        return values
