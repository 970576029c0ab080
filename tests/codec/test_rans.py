"""Tokens come back under every table, and a stream says when it is not one."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.rans import (
    LANES,
    LOWEST_STATE,
    SLOTS,
    TOKENS,
    Decoding,
    Encoding,
    decode_tokens,
    encode_tokens,
    fill_decoding,
    slots_of,
)

Freqs = npt.NDArray[np.uint16]
Tokens = npt.NDArray[np.uint8]


def table_of(tokens: list[int], seed: int) -> Freqs:
    """Frequencies of just these tokens, of very different sizes."""
    draw = np.random.default_rng(seed)
    weights = draw.random(len(tokens)) ** 6 + 1e-9
    row = np.zeros(TOKENS, np.uint16)
    row[tokens] = np.maximum(1, np.floor((SLOTS - len(tokens)) * weights / weights.sum()))
    row[tokens[0]] += SLOTS - row.sum()
    return row


TABLES = st.builds(table_of, st.lists(st.integers(0, TOKENS - 1), min_size=1, unique=True), st.integers(0, 1 << 32))


def code(freqs: Freqs, tokens: Tokens, cells: Tokens) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """States and words of tokens; cell ``i`` has table ``i``."""
    keys = (cells.astype(np.uint16) << 6 | tokens).astype(np.uint16)
    slots = slots_of(freqs, np.arange(len(freqs), dtype=np.uint8))
    states, words = np.full((1, LANES), LOWEST_STATE, np.uint32), np.empty((1, tokens.size + 1), np.uint16)
    (first,) = encode_tokens(Encoding(keys, tokens.size, slots, states, words))
    return states[0], words[0, first:]


def decode(
    freqs: Freqs, states: npt.NDArray[np.uint32], words: npt.NDArray[np.uint16], cells: Tokens
) -> tuple[Tokens, int]:
    """Tokens, and words taken; ``states`` become those after the last."""
    entries = np.empty(len(freqs) * SLOTS, np.uint32)
    fill_decoding(freqs, entries)
    tokens, rows = np.empty((1, cells.size), np.uint8), states[None].copy()
    room = np.concatenate([words, np.zeros(cells.size + 1, np.uint16)])
    taken = decode_tokens(Decoding(room[None], cells[None], entries, rows, tokens, np.array([cells.size])))
    states[:] = rows[0]
    return tokens[0], int(taken[0])


@given(st.lists(TABLES, min_size=1, max_size=5), st.integers(1, 256), st.integers(0, 1 << 32))
def test_slots_follow_each_other(kernels: str, rows: list[Freqs], cells: int, seed: int) -> None:
    freqs, of_cell = np.stack(rows), np.random.default_rng(seed).integers(0, len(rows), cells).astype(np.uint8)
    slots = slots_of(freqs, of_cell).reshape(cells, TOKENS)
    assert np.array_equal(slots & 0xFFFF, freqs[of_cell])
    for row in slots:
        own = row[row != 0]
        assert (own >> 16).tolist() == [0, *np.cumsum(own & 0xFFFF)[:-1].tolist()]


@given(st.lists(TABLES, min_size=1, max_size=5), st.integers(0, 300), st.integers(0, 1 << 32))
@settings(max_examples=200)
def test_tokens_come_back(rows: list[Freqs], n: int, seed: int) -> None:
    freqs, draw = np.stack(rows), np.random.default_rng(seed)
    cells = draw.integers(0, len(rows), n).astype(np.uint8)
    # Half of them as often as the table says, half of them all alike.
    tokens = np.array([draw.choice(np.flatnonzero(freqs[cell])) for cell in cells], np.uint8)
    likely = np.array([draw.choice(TOKENS, p=freqs[cell] / SLOTS) for cell in cells], np.uint8)
    tokens = np.where(draw.random(n) < 0.5, tokens, likely).astype(np.uint8)
    states, words = code(freqs, tokens, cells)
    assert (states >= LOWEST_STATE).all()
    decoded, taken = decode(freqs, states, words, cells)
    assert np.array_equal(decoded, tokens)
    assert taken == words.size
    assert (states == LOWEST_STATE).all()
