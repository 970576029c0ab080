"""``step2``: how far each code moved, as a token under a context that the source gives. FORMAT.md has every bit.

Encoding a block:

    equal to the source                  "same": 8 bytes
    few coordinates move                 "sparse"                                                sparse.py
    tokens_of                            a token per coordinate, and counts by exponent          ulp_steps.py
    for each plan: exponents alone; with factors; with scales                                    contexts.py
        classify_all                     a cell per coordinate, flipped tokens                   subblocks.py
        build_tables                     cells share tables; estimated bits                      tables.py
    the cheapest plan: model, directory, sub-blocks                                              layout.py
    by a factor, zeros, rows, unrelated  a block from where that is known                        derived.py
    not smaller than the codes           "raw": 8 bytes and the codes

Each plan includes the bits of its own scales or factors. Most blocks are far from either border; :data:`_CLEAR_GAIN`,
:data:`MIN_LINE`, :data:`MIN_MOVED` and :func:`~maskreg.codec.scales.vary` skip plans that could not win. Blocks of
derived.py are tried where the tokens of the others look like it.

Which codings of a block are tried: tokens, as sparse, or both.

Sparse blocks take fewer bytes where few coordinates move, and decode faster; but they know nothing of rows and columns.
Knowing how many coordinates move in each row saves, over not knowing it,

    G = sum of k log2(k / (movers / rows)) bits, k the movers of a row

(the log-likelihood ratio of R. R. Sokal and F. J. Rohlf, "Biometry"); the same for columns. Scales take about four bits
each, so only where G exceeds that, tokens are tried too: where an embedding's rows are of words that seldom occur, say.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import FLAT, Block, Codes, Grid, Movers
from maskreg.codec.contexts import PLAIN_CLASSES, SIZES, Contexts, Matrix, rows_of
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
from maskreg.codec.movers import (
    LOGARITHM_BITS,
    LOGARITHMS,
    NONE,
    changed,
    find_movers,
    merged,
    swapped,
)
from maskreg.codec.scales import fit_scales, vary
from maskreg.codec.sparse import SparseLayout, decode_sparse, encode_sparse
from maskreg.codec.subblocks import Pair, classify_all, decode_coded, encode_sub_blocks, most_bytes
from maskreg.codec.tables import build_tables, plain_window, slots_of
from maskreg.codec.ulp_steps import EXPONENTS, LITERAL, MIDDLE, TOKENS, Counts, tokens_of
from maskreg.errors import CorruptError
from maskreg.extras import install_command
from maskreg.native import library
from maskreg.parallel import Buffers
from maskreg.tensors.bus import down, on_device, up
from maskreg.tensors.info import BLOCK_NUMEL

if TYPE_CHECKING:
    import torch

FEW = 32
"""Sparse blocks of one mover in so many coordinates, or fewer, decode about as fast as tokens."""

_SMALL = 1 << 18
_SMALL_FEW = 8
"""In a block this small, tokens rarely make up for their tables and states, and time matters less: more are sparse."""

_TINY = 1 << 10
"""In a block this small both are tried, because tables and states of tokens can take more than they save."""

_FEW_ROWS = 4  # rows that change are coded alone if there is one in so many, or fewer, and as many movers in each

MIN_MOVED = 8
"""Movers per row and column below which scales and factors cost more than they save, as a rule; measured."""

_SCALE_BITS = 4
MIN_LINE = 32
"""Rows and columns of the smallest matrix for which scales or factors can pay."""

_PIECE, _PIECES = 1 << 9, 64
"""Coordinates looked at first, because most blocks have many movers everywhere: so many, in so many places."""

_MARGIN = 1.25  # by how much more of a sample than of a block must move: at the border both codings are about as long


class Choice(NamedTuple):
    """Codings to try: at least one.

    Attributes:
        movers: where a sparse block is tried; else None.
        lines: whether it is known that scales pay.
        rows: bool ``[rows]``, those that change, where a block of them alone is tried; else None.
    """

    movers: Movers | None = None
    tokens: bool = True
    lines: bool = False
    rows: npt.NDArray[np.bool_] | None = None


def choose(source: Codes, target: Codes | Movers, grid: Grid) -> Choice:
    """Codings to try for a block; movers that are none say that its sides are equal."""
    n = source.size
    if n <= _TINY:
        return Choice(_movers(source, target))
    few = _SMALL_FEW if n <= _SMALL else FEW
    pieces, length, margin = (_PIECES, _PIECE, _MARGIN) if n > _PIECES * _PIECE else (1, n, 1)
    if few * count_differing(source, target, length, n // pieces) > margin * pieces * length:
        return Choice()
    movers = _movers(source, target)
    moved = movers.positions.size
    if few * moved > n:
        return Choice()
    if not moved or not 1 < grid.width <= n:
        return Choice(movers, tokens=False)
    rows, columns = count_lines(n, movers, grid)
    price = _SCALE_BITS * (rows.size + columns.size) << LOGARITHM_BITS
    lines = min(rows.size, columns.size) >= MIN_LINE and gain_of_lines(rows) + gain_of_lines(columns) > price
    # Small blocks have another border than FEW: a large block with so many movers was answered above.
    enough = FEW * moved > n and moved >= MIN_MOVED * (rows.size + columns.size)
    changing = rows > 0
    few_rows = _FEW_ROWS * np.count_nonzero(changing) <= min(rows.size, moved)
    return Choice(movers, lines or enough, lines, changing if few_rows else None)


def _movers(source: Codes, target: Codes | Movers) -> Movers:
    return target if isinstance(target, Movers) else find_movers(source, target)


def count_differing(source: Codes, target: Codes | Movers, length: int, stride: int) -> int:
    """How many coordinates differ in pieces of ``length``, at most 65,535, of which one begins at each ``stride``."""
    if isinstance(target, Movers):
        begins = np.arange(0, source.size - length + 1, stride, dtype=np.uint32)
        before, after = (np.searchsorted(target.positions, at) for at in (begins, begins + np.uint32(length)))
        return int((after - before).sum())
    compiled = library()
    differing: int = compiled.lib.maskreg_count_differing(
        compiled.read(source), compiled.read(target), source.size, length, stride
    )
    return differing


def count_lines(n: int, movers: Movers, grid: Grid) -> tuple[Counts, Counts]:
    """Movers of each row and of each column of a block of ``n`` coordinates; int64 ``[rows]`` and ``[width]``."""
    rows, columns = np.zeros(rows_of(grid, n), np.int64), np.zeros(grid.width, np.int64)
    compiled = library()
    compiled.lib.maskreg_count_lines(
        compiled.read(movers.positions), movers.positions.size, grid.width, grid.column, compiled.write(rows),
        compiled.write(columns),
    )  # fmt: skip
    return rows, columns


def gain_of_lines(movers: Counts) -> int:
    """How much it saves to know how many movers each line has, in bits of movers.py."""
    compiled = library()
    gain: int = compiled.lib.maskreg_gain_of_lines(compiled.read(movers), movers.size, compiled.read(LOGARITHMS))
    return gain


@cache
def _triton_decoders() -> tuple[Any, Any] | None:
    """Functions that decode several blocks on their contexts' GPU, coded and sparse ones; None without Triton.

    Triton takes a second to import and exists on Linux only: imported where it is used. Its absence is warned of once.
    """
    try:
        from maskreg.codec.triton_decode import decode_layouts, decode_sparse_layouts
    except ImportError as error:
        warnings.warn(
            f"blocks are decoded on the CPU, because Triton is not installed ({error}); "
            f"to decode them on the GPU: {install_command('gpu')}",
            stacklevel=4,
        )
        return None
    return decode_layouts, decode_sparse_layouts


_SUB_BLOCKS = ((0.5, 1 << 18), (0.15, 1 << 19), (0.0, 1 << 21))
"""Most coordinates of a sub-block, by the bits per coordinate from which on it holds. Each costs some 60 bytes.

Two decode side by side, so a block of at least half that many has an even number of sub-blocks."""

_LAUNCHED = 256  # blocks decoded in one launch at most: offsets into all their tables and bytes fit 32 bits

_CLEAR_GAIN = 0.9
"""Share of the plain plan's bits. When factors need no more, scales are not tried: they never came close; measured."""

_SIDED = 1.5  # a factor is sought where one coordinate in so many moves to one side

_FAR, _FARTHER = 64, MIDDLE - 24
"""Zeros are sought where one coordinate in so many changes its sign, or has a token below this one."""

_BUFFERS = Buffers(huge=False)  # of the block that a thread encodes


class Step2:
    """Codes ULP steps; never larger than the codes and 8 bytes."""

    name = "step2"

    def encode(self, context: Codes, values: Codes | Movers, grid: Grid = FLAT) -> bytes:
        """Code values for a reader who has ``context``; the block is larger without ``grid``."""
        n = context.size
        if not isinstance(values, Movers) and context.shape != values.shape:
            raise ValueError(f"lengths differ: {n} and {values.size}")
        if not 1 <= n <= BLOCK_NUMEL:
            raise ValueError(f"a block has 1 to {BLOCK_NUMEL} values, not {n}")
        if grid.width and not 0 <= grid.column < grid.width:
            raise ValueError(f"column {grid.column} is not in a row of {grid.width}")
        return self._encode(context, values, grid, ROWS + 1)

    def _encode(self, context: Codes, values: Codes | Movers, grid: Grid, below: int) -> bytes:
        """The shortest of the blocks that are tried, of kinds below a number."""
        n = context.size
        choice = choose(context, values, grid)
        if choice.movers is not None and not choice.movers.positions.size:
            return Head(n, SAME).pack()
        blocks: list[bytes | None] = []
        if choice.movers is not None:
            sparse = encode_sparse(context, choice.movers)
            if not choice.tokens and choice.rows is None and len(sparse) < HEAD_BYTES + 2 * n:
                return sparse
            blocks.append(sparse)
        if isinstance(values, Movers):
            values = changed(context, values)
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
            # Apart takes a byte for each coordinate at least.
            if below > APART and len(coded) > n and len(coded) > apart_bytes(values):
                blocks.append(encode_apart(context, values, self._encode))
        shortest = min((block for block in blocks if block), key=len)
        if len(shortest) < HEAD_BYTES + 2 * n:
            return shortest
        return Head(n, RAW).pack() + values.astype("<u2").tobytes()

    def decode(self, context: Codes, block: Block, values: Codes | None = None) -> Codes:
        """The values, uint16 ``[n]``, in ``values`` if given."""
        head = Head.read(block)
        n, kind = head.n, head.kind
        if n != context.size:
            raise CorruptError("block", f"its header says {n} values, not {context.size}")
        values = np.empty(n, np.uint16) if values is None else values
        if kind == SAME:
            values[:] = context
        elif kind == RAW:
            values[:] = np.frombuffer(block, "<u2", n, HEAD_BYTES)
        elif kind == SPARSE:
            movers = decode_sparse(SparseLayout(block), context)
            values[:] = context
            swapped(values, movers)
        elif kind == CODED:
            decode_coded(block, context, values)
        else:
            values[:] = decode_derived(head, block, context, self.decode)
        return values

    def movers(self, context: Codes, block: Block, before: Movers = NONE) -> Movers:
        """Where :meth:`decode` gives other codes than the context's, and which; see :class:`Codec`."""
        head = Head.read(block)
        if head.kind == SPARSE and head.n == context.size:
            return merged(context, before, decode_sparse(SparseLayout(block), context, before))
        if head.kind == SAME and head.n == context.size:
            return before
        given = changed(context, before) if before.positions.size else context
        return find_movers(context, self.decode(given, block, _BUFFERS.array("values", context.size, np.uint16)))

    def decode_tensors(self, contexts: Sequence[torch.Tensor], blocks: Sequence[Block]) -> list[torch.Tensor]:
        """Like :meth:`decode`, for several blocks at once; int16 ``[n]`` each, on a GPU or on the CPU."""
        pairs = list(zip(contexts, blocks, strict=True))
        decoders = _triton_decoders() if pairs and on_device(contexts[0]) else None
        if decoders is None:
            return [self._on_cpu(*pair) for pair in pairs]
        decode_coded_blocks, decode_sparse_blocks = decoders
        decoded: dict[int, torch.Tensor] = {}
        of_kind: dict[int, list[int]] = {}
        for i, (context, block) in enumerate(pairs):
            head = Head.read(block)
            if head.n != context.numel():
                raise CorruptError("block", f"its header says {head.n} values, not {context.numel()}")
            of_kind.setdefault(head.kind, []).append(i)
        # Kinds without kernels: they are rare.
        for i in itertools.chain.from_iterable(of_kind.get(kind, ()) for kind in (SCALED, APART, ZEROED, ROWS)):
            on_cpu = self.decode(down(contexts[i], "blocks").view(np.uint16), blocks[i])
            decoded[i] = up(on_cpu.view(np.int16), contexts[i].device, "blocks")
        for i in of_kind.get(SAME, ()):
            decoded[i] = contexts[i].clone()
        for i in of_kind.get(RAW, ()):
            decoded[i] = up(np.frombuffer(blocks[i], "<i2", offset=HEAD_BYTES), contexts[i].device, "blocks")
        for kind, layout, decode in (
            (CODED, Layout, decode_coded_blocks),
            (SPARSE, SparseLayout, decode_sparse_blocks),
        ):
            for batch in _batches(of_kind.get(kind, [])):
                values = decode([contexts[i] for i in batch], [layout(blocks[i]) for i in batch])
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
        # The header has 32 bits for the width; a block is only a part of a wider row.
        self._grid = grid if 0 < grid.width < 1 << 32 else Grid(n, 0)
        self._counts = np.zeros((EXPONENTS, TOKENS), np.int64)
        self._read_tokens("keys", self._counts)
        of_token = self._counts.sum(axis=0)
        literals = of_token[LITERAL]
        ways = of_token[:MIDDLE].sum(), of_token[MIDDLE + 1 : LITERAL].sum(), literals
        self.one_sided = bool(_SIDED * max(ways) >= n)
        """Whether nearly all weights shrink, or grow, or change their sign: by a factor, perhaps."""
        self.far = bool(_FAR * (of_token[:_FARTHER].sum() + literals) >= n)
        """Whether many move by as much as it takes to become 0, or change their sign."""

    def encode(self) -> bytes:
        plan = self._best()
        n = self._values.size
        count = _sub_blocks(n, plan.bits / n)
        size = sub_block_numel(n, count)
        head = pack_coded(n, count, plan.model)
        block = _BUFFERS.bytes("block", len(head) + most_bytes(n, size))
        block[: len(head)] = np.frombuffer(head, np.uint8)
        own = Pair(self._context, self._values, plan.keys, size)
        return block[: len(head) + encode_sub_blocks(own, slots_of(plan.model.tables), block[len(head) :])].tobytes()

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
            if factors := fit_factors(matrix, self._counts, _BUFFERS):
                of_rows, of_columns = factors
                bounds = size_bounds(of_rows, of_columns)
                none = np.empty(0, np.int8)
                best = self._plan(Contexts(self._grid, 2 * first, none, none, of_rows, of_columns, bounds))
            if best is None or best.bits > _CLEAR_GAIN * bits:
                if best:  # its keys took the place of the tokens
                    self._read_tokens("other keys", np.zeros_like(self._counts))
                of_rows, of_columns = fit_scales(matrix._replace(tokens=self._tokens), self._counts)
                if vary(of_rows, of_columns):
                    # Half an exponent lower, because scales shift to both sides.
                    scaled = self._plan(Contexts(self._grid, max(0, 2 * first - 1), of_rows, of_columns))
                    best = scaled if best is None or scaled.bits < best.bits else best
        # The plain plan was priced from counts alone; only where it wins are its keys and tables made.
        return best if best and best.bits < bits else self._plan(Contexts(self._grid, 2 * first))

    def _read_tokens(self, use: str, counts: npt.NDArray[np.int64]) -> None:
        """Put the tokens into the second half of memory for keys, and add their counts up."""
        n = self._values.size
        self._keys = _BUFFERS.array(use, n, np.uint16)
        self._tokens, self._are_keys = self._keys.view(np.uint8)[n:], False
        tokens_of(self._context, self._values, self._tokens, counts)

    def _plan(self, contexts: Contexts) -> _Plan:
        """A plan, with keys in place of the tokens, or of the keys of a plan without factors."""
        tokens = None if self._are_keys else self._tokens
        counts = classify_all(self._context, self._grid.column, contexts, tokens, self._keys)
        self._are_keys = True
        tables, bits = build_tables(counts, SIZES if contexts.rank else 1)
        return _Plan(Model(contexts, tables), self._keys, bits + side_bits(contexts))


def _sub_blocks(n: int, bits: float) -> int:
    """How many sub-blocks a block of ``n`` coordinates gets when each takes so many bits."""
    most = next(most for least, most in _SUB_BLOCKS if bits >= least)
    return 2 * -(-n // (2 * most)) if n >= most // 2 else 1
