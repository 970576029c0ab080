"""``step2``: how far each code moved, as a token under a context that the source gives. FORMAT.md has every bit.

Encoding a block:

    equal to the source                  "same": 8 bytes
    few coordinates move                 "sparse"                                                choice.py, sparse.py
    tokens_of                            a token per coordinate, and counts by exponent          ulp_steps.py
    for each plan: exponents alone; with factors; with scales                                    contexts.py
        classify_all                     a cell per coordinate, flipped tokens                   subblocks.py
        build_tables                     cells share tables; estimated bits                      tables.py
    the cheapest plan: model, directory, sub-blocks                                              rans.py, layout.py
    by a factor, zeros, rows, unrelated  a block from where that is known                        derived.py
    not smaller than the codes           "raw": 8 bytes and the codes

Each plan includes the bits of its own scales or factors. Most blocks are far from either border; :data:`_CLEAR_GAIN`,
:data:`MIN_LINE`, :data:`MIN_MOVED` and :func:`~maskreg.codec.scales.vary` skip plans that could not win. Blocks of
derived.py are tried where the tokens of the others look like it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import FLAT, Block, Codes, Grid
from maskreg.codec.choice import MIN_LINE, MIN_MOVED, choose
from maskreg.codec.contexts import PLAIN_CLASSES, SIZES, TILE, Contexts, Matrix, rows_of
from maskreg.codec.derived import apart_bytes, decode_derived, encode_apart, encode_rows, encode_scaled, encode_zeroed
from maskreg.codec.factors import fit_factors, size_bounds
from maskreg.codec.layout import (
    APART,
    CODED,
    HEAD_BYTES,
    RAW,
    ROWS,
    SAME,
    SCALED,
    SPARSE,
    ZEROED,
    Head,
    Layout,
    Model,
    pack_coded,
    side_bits,
    sub_block_numel,
)
from maskreg.codec.rans import TOKENS, slots_of
from maskreg.codec.scales import fit_scales, vary
from maskreg.codec.sparse import SparseLayout, decode_sparse, encode_sparse
from maskreg.codec.subblocks import Pair, classify_all, decode_coded, encode_sub_blocks, most_bytes
from maskreg.codec.tables import build_tables, plain_window
from maskreg.codec.ulp_steps import EXPONENTS, LITERAL, MIDDLE, tokens_of
from maskreg.errors import CorruptError
from maskreg.extras import install_command
from maskreg.parallel import Buffers
from maskreg.tensors.bus import down, on_device, up
from maskreg.tensors.info import BLOCK_NUMEL

if TYPE_CHECKING:
    import torch


class Decoders(NamedTuple):
    """Functions that decode several blocks at once, on their contexts' device.

    Attributes:
        coded: blocks in which every coordinate has a token.
        sparse: blocks in which few coordinates move.
    """

    coded: Callable[[Sequence[torch.Tensor], Sequence[Layout]], list[torch.Tensor]]
    sparse: Callable[[Sequence[torch.Tensor], Sequence[SparseLayout]], list[torch.Tensor]]


def decoders_for(source: torch.Tensor) -> Decoders | None:
    """Functions that decode blocks on this tensor's device; None when they have to be decoded on the CPU.

    The latter includes a GPU without Triton, of which it warns once.
    """
    return _triton_decoders() if on_device(source) else None


@cache
def _triton_decoders() -> Decoders | None:
    # Triton takes a second to import and exists on Linux only: imported where it is used.
    try:
        from maskreg.codec.triton_decode import decode_layouts
        from maskreg.codec.triton_sparse import decode_sparse_layouts
    except ImportError as error:
        warnings.warn(
            f"blocks are decoded on the CPU, because Triton is not installed ({error}); "
            f"to decode them on the GPU: {install_command('gpu')}",
            stacklevel=4,
        )
        return None
    return Decoders(decode_layouts, decode_sparse_layouts)


_SUB_BLOCKS = ((0.5, 1 << 18), (0.15, 1 << 19), (0.0, 1 << 21))
"""Most coordinates of a sub-block, by the bits per coordinate from which on it holds. Each costs some 60 bytes.

Two decode side by side, so a block of at least half that many has an even number of sub-blocks."""

_LAUNCHED = 256
"""Blocks decoded in one launch at most: offsets into all their tables and bytes fit 32 bits."""

_CLEAR_GAIN = 0.9
"""Share of the plain plan's bits. When factors need no more, scales are not tried: they never came close; measured."""

_SIDED = 1.5
"""A factor is sought where one coordinate in so many moves to one side."""

_FAR, _FARTHER = 64, MIDDLE - 24
"""Zeros are sought where one coordinate in so many changes its sign, or has a token below this one."""

_BUFFERS = Buffers()
"""Tokens and keys of the block that a thread encodes."""


class Step2:
    """Codes ULP steps; never larger than the codes and 8 bytes."""

    name = "step2"

    def encode(self, context: Codes, values: Codes, grid: Grid = FLAT) -> bytes:
        """Code ``values`` for a reader who has ``context``; both uint16 ``[n]``.

        ``grid``: where the coordinates lie in their matrix; the block is larger without.
        """
        n = values.size
        if context.shape != values.shape:
            raise ValueError(f"lengths differ: {context.size} and {n}")
        if not 1 <= n <= BLOCK_NUMEL:
            raise ValueError(f"a block has 1 to {BLOCK_NUMEL} values, not {n}")
        if grid.width and not 0 <= grid.column < grid.width:
            raise ValueError(f"column {grid.column} is not in a row of {grid.width}")
        return self._encode(context, values, grid, ROWS + 1)

    def _encode(self, context: Codes, values: Codes, grid: Grid, below: int) -> bytes:
        """The shortest of the blocks that are tried, of kinds below a number."""
        n = values.size
        # Most blocks that differ do so early.
        if np.array_equal(context[:TILE], values[:TILE]) and np.array_equal(context, values):
            return Head(n, SAME).pack()
        choice = choose(context, values, grid)
        blocks: list[bytes | None] = []
        if choice.movers is not None:
            blocks.append(encode_sparse(context, values, choice.movers))
        if choice.rows is not None and below > ROWS:
            blocks.append(encode_rows(context, values, grid, choice.rows, self._encode))
        if choice.tokens:
            encoder = _Encoder(context, values, grid, lines=choice.lines)
            coded = encoder.encode()
            blocks.append(coded)
            if below > SCALED and encoder.one_sided:
                blocks.append(encode_scaled(context, values, grid, self._encode))
            if below > ZEROED and encoder.far:
                blocks.append(encode_zeroed(context, values, grid, self._encode))
            if below > APART and len(coded) > n and len(coded) > apart_bytes(values):
                blocks.append(encode_apart(context, values, self._encode))
        shortest = min((block for block in blocks if block), key=len)
        if len(shortest) < HEAD_BYTES + 2 * n:
            return shortest
        return Head(n, RAW).pack() + values.astype("<u2").tobytes()

    def decode(self, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """The values, uint16 ``[n]``, in ``values`` if given."""
        n = Head.read(block).n
        if n != context.size:
            raise CorruptError("block", f"its header says {n} values, not {context.size}")
        values = np.empty(n, np.uint16) if values is None else values
        self.decode_into(context, block, 0, values)
        return values

    def entry_numel(self, block: Block) -> int:
        """Coordinates between entry points."""
        return _entry_numel(Head.read(block))

    def decode_part(self, context: Codes, block: Block, start: int) -> Codes:
        """A span of the values, uint16 ``[m]``."""
        values = np.empty(context.size, np.uint16)
        self.decode_into(context, block, start, values)
        return values

    def decode_into(self, context: Codes, block: Block, start: int, values: Codes) -> None:
        """Fill ``values``, uint16 ``[m]``, with a span."""
        head = Head.read(block)
        n, kind = head.n, head.kind
        stop, every = start + context.size, _entry_numel(head)
        if not 0 <= start <= stop <= n or start % every or (stop % every and stop != n):
            raise ValueError(f"[{start}, {stop}) is not between entry points, at every {every} of {n} values")
        if kind == SAME:
            values[:] = context
        elif kind == RAW:
            values[:] = np.frombuffer(block, "<u2", context.size, HEAD_BYTES + 2 * start)
        elif kind == SPARSE:
            decode_sparse(SparseLayout(block), context, start, values)
        elif kind == CODED:
            decode_coded(block, context, start, values)
        else:
            values[:] = decode_derived(head, block, context, self.decode)

    def decode_tensors(self, contexts: Sequence[torch.Tensor], blocks: Sequence[Block]) -> list[torch.Tensor]:
        """Like :meth:`decode`, for several blocks at once; int16 ``[n]`` each, on a GPU or on the CPU."""
        pairs = list(zip(contexts, blocks, strict=True))
        decoders = decoders_for(contexts[0]) if pairs else None
        if decoders is None:
            return [self._on_cpu(*pair) for pair in pairs]
        decoded: dict[int, torch.Tensor] = {}
        of_kind: dict[int, list[int]] = {}
        for i, (context, block) in enumerate(pairs):
            head = Head.read(block)
            if head.n != context.numel():
                raise CorruptError("block", f"its header says {head.n} values, not {context.numel()}")
            of_kind.setdefault(head.kind, []).append(i)
        for i in itertools.chain.from_iterable(of_kind.get(kind, ()) for kind in (SCALED, APART, ZEROED, ROWS)):
            on_cpu = self.decode(down(contexts[i], "blocks").view(np.uint16), blocks[i])
            decoded[i] = up(on_cpu.view(np.int16), contexts[i].device, "blocks")
        for i in of_kind.get(SAME, ()):
            decoded[i] = contexts[i].clone()
        for i in of_kind.get(RAW, ()):
            decoded[i] = up(np.frombuffer(blocks[i], "<i2", offset=HEAD_BYTES), contexts[i].device, "blocks")
        for batch in _batches(of_kind.get(CODED, [])):
            values = decoders.coded([contexts[i] for i in batch], [Layout(blocks[i]) for i in batch])
            decoded |= zip(batch, values, strict=True)
        for batch in _batches(of_kind.get(SPARSE, [])):
            values = decoders.sparse([contexts[i] for i in batch], [SparseLayout(blocks[i]) for i in batch])
            decoded |= zip(batch, values, strict=True)
        return [decoded[i] for i in range(len(pairs))]

    def _on_cpu(self, context: torch.Tensor, block: Block) -> torch.Tensor:
        import torch

        values = self.decode(context.cpu().numpy().view(np.uint16), block)
        return torch.from_numpy(values.view(np.int16)).to(context.device)


def _batches(numbers: list[int]) -> Iterator[list[int]]:
    """As many at a time as one launch takes."""
    for first in range(0, len(numbers), _LAUNCHED):
        yield numbers[first : first + _LAUNCHED]


def _entry_numel(head: Head) -> int:
    if head.kind in (CODED, SPARSE):
        return sub_block_numel(head.n, head.sub_blocks)
    return head.n if head.kind > SPARSE else 1


@dataclass(frozen=True)
class _Plan:
    """One way to code a block: contexts and tables, the keys of its coordinates under these, and estimated bits."""

    model: Model
    keys: npt.NDArray[np.uint16]
    bits: float


class _Encoder:
    def __init__(self, context: Codes, values: Codes, grid: Grid, *, lines: bool = False) -> None:
        self._context, self._values, self._lines = context, values, lines
        n = values.size
        self._grid = grid if 0 < grid.width < 1 << 32 else Grid(n, 0)
        self._plans = 0
        self._tokens = _BUFFERS.array("tokens", n, np.uint8)
        self._counts = np.zeros((EXPONENTS, TOKENS), np.int64)
        tokens_of(context, values, self._tokens, self._counts)
        of_token = self._counts.sum(axis=0)
        literals = of_token[LITERAL]
        ways = of_token[:MIDDLE].sum(), of_token[MIDDLE + 1 : LITERAL].sum(), literals
        self.one_sided = bool(_SIDED * max(ways) >= n)
        """Whether nearly all weights shrink, or grow, or change their sign: by a factor, perhaps."""
        self.far = bool(_FAR * (of_token[:_FARTHER].sum() + literals) >= n)
        """Whether many move by as much as it takes to become 0, or change their sign."""

    def encode(self) -> bytes:
        plan = self._best()
        tables = plan.model.tables
        slots = slots_of(tables.freqs, tables.of_cell)
        n = self._values.size
        count = _sub_blocks(n, plan.bits / n)
        size = sub_block_numel(n, count)
        head = pack_coded(n, count, plan.model)
        block = _BUFFERS.bytes("block", len(head) + most_bytes(n, size))
        block[: len(head)] = np.frombuffer(head, np.uint8)
        own = Pair(self._context, self._values, plan.keys, size)
        return block[: len(head) + encode_sub_blocks(own, slots, block[len(head) :])].tobytes()

    def _best(self) -> _Plan:
        """The cheapest of exponents alone, with factors, and with scales."""
        first, bits = plain_window(self._counts, PLAIN_CLASSES)
        best: _Plan | None = None
        n, width = self._values.size, self._grid.width
        rows = rows_of(self._grid, n)
        moved = n - int(self._counts[:, MIDDLE].sum())
        enough = self._lines or moved >= MIN_MOVED * (rows + width)
        if min(rows, width) >= MIN_LINE and width <= n and enough:
            matrix = Matrix(self._context, self._tokens, rows, width, self._grid.column)
            if factors := fit_factors(matrix, self._counts):
                of_rows, of_columns = factors
                bounds = size_bounds(of_rows, of_columns)
                none = np.empty(0, np.int8)
                best = self._plan(Contexts(self._grid, 2 * first, none, none, of_rows, of_columns, bounds))
            if best is None or best.bits > _CLEAR_GAIN * bits:
                of_rows, of_columns = fit_scales(matrix, self._counts)
                if vary(of_rows, of_columns):
                    # Half an exponent lower, because scales shift to both sides.
                    scaled = self._plan(Contexts(self._grid, max(0, 2 * first - 1), of_rows, of_columns))
                    best = scaled if best is None or scaled.bits < best.bits else best
        return best if best and best.bits < bits else self._plan(Contexts(self._grid, 2 * first))

    def _plan(self, contexts: Contexts) -> _Plan:
        # The best plan so far keeps its own; the third is tried where neither is good.
        keys = _BUFFERS.array(f"keys {self._plans % 2}", self._values.size, np.uint16)
        self._plans += 1
        counts = classify_all(self._context, self._grid.column, contexts, self._tokens, keys)
        tables, bits = build_tables(counts, SIZES if contexts.rank else 1)
        return _Plan(Model(contexts, tables), keys, bits + side_bits(contexts))


def _sub_blocks(n: int, bits: float) -> int:
    """How many sub-blocks a block of ``n`` coordinates gets when each takes so many bits."""
    most = next(most for least, most in _SUB_BLOCKS if bits >= least)
    return 2 * -(-n // (2 * most)) if n >= most // 2 else 1
