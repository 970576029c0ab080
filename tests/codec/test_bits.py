"""Plain, Rice and gamma codes: read back as written, refused when out of range, and never read beyond the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.bits import get_bits, get_gamma, get_rice, put_bits, put_gamma, put_rice, rice_bits

ROOM = 4_000


@given(st.lists(st.tuples(st.integers(0, (1 << 16) - 1), st.integers(0, 16))), st.integers(0, 9))
def test_bits_come_back(pairs: list[tuple[int, int]], start: int) -> None:
    bits = np.zeros(ROOM, np.uint8)
    at = start
    for value, count in pairs:
        at = put_bits(bits, at, value, count)
    assert at == start + sum(count for _, count in pairs)
    at = start
    for value, count in pairs:
        assert get_bits(bits, at, count) == value & ((1 << count) - 1)
        at += count


def test_the_lowest_bit_comes_first() -> None:
    bits = np.zeros(3, np.uint8)
    assert put_bits(bits, 5, 0b1011, 4) == 9
    assert bits.tolist() == [0b01100000, 0b1, 0]


@given(st.lists(st.integers(-31, 31), max_size=100), st.integers(0, 7), st.integers(0, 9))
def test_rice_codes_come_back(values: list[int], plain: int, start: int) -> None:
    line = np.array(values, np.int8)
    bits = np.zeros(ROOM, np.uint8)
    end = put_rice(bits, start, line, plain)
    assert end == start + rice_bits(line, plain)
    decoded = np.zeros_like(line)
    assert get_rice(bits, start, decoded, plain, 31) == end
    assert decoded.tolist() == values


@pytest.mark.parametrize("plain", range(8))
@pytest.mark.parametrize("most", [15, 31])
@pytest.mark.parametrize("sign", [-1, 1])
def test_rice_codes_out_of_range_are_refused(plain: int, most: int, sign: int) -> None:
    for beyond in (0, 1, 50):
        bits = np.zeros(ROOM, np.uint8)
        put_rice(bits, 3, np.array([0, sign * (most + beyond)], np.int8), plain)
        assert (get_rice(bits, 3, np.zeros(2, np.int8), plain, most) == -1) == (beyond > 0)


def test_endless_ones_are_no_rice_code() -> None:
    for plain in range(8):
        assert get_rice(np.full(100, 255, np.uint8), 0, np.zeros(1, np.int8), plain, 31) == -1


@given(st.lists(st.integers(0, 4_096), max_size=80), st.integers(0, 9))
def test_gamma_codes_come_back(values: list[int], start: int) -> None:
    bits = np.zeros(ROOM, np.uint8)
    end = start
    for value in values:
        end = put_gamma(bits, end, value)
    at = start
    for value in values:
        decoded, at = get_gamma(bits, at, 4_096)
        assert decoded == value
    assert at == end


@pytest.mark.parametrize(("value", "code"), [(0, "1"), (1, "010"), (4, "00101"), (4_096, 12 * "0" + "1000000000001")])
def test_gamma_codes_are_those_of_the_format(value: int, code: str) -> None:
    bits = np.zeros(8, np.uint8)
    assert put_gamma(bits, 0, value) == len(code)
    assert "".join(str(get_bits(bits, i, 1)) for i in range(len(code))) == code


def test_gamma_codes_out_of_range_are_refused() -> None:
    bits = np.zeros(8, np.uint8)
    put_gamma(bits, 0, 4_097)
    assert get_gamma(bits, 0, 4_096)[0] == -1
    assert get_gamma(np.zeros(100, np.uint8), 0, 4_096)[0] == -1


@given(st.binary(max_size=3), st.integers(0, 60), st.integers(0, 16))
def test_beyond_the_end_all_bits_are_zero(data: bytes, at: int, count: int) -> None:
    bits = np.frombuffer(data, np.uint8)
    expected = int.from_bytes(data, "little") >> at & ((1 << count) - 1)
    assert get_bits(bits, at, count) == expected
