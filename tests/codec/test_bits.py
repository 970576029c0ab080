"""Plain, Rice and gamma codes: read back as written, refused when out of range, and never read beyond the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.bits import Flags, Reader, fixed, gamma, pack_flags, rice


def reader(flags: Flags, start: int = 0) -> Reader:
    """Reads flags that begin after so many zeros."""
    skipped = Reader(np.frombuffer(pack_flags([np.zeros(start, np.uint8), flags]), np.uint8))
    skipped.at = start
    return skipped


@given(st.lists(st.tuples(st.integers(0, (1 << 16) - 1), st.integers(0, 16)), min_size=1), st.integers(0, 9))
def test_bits_come_back(pairs: list[tuple[int, int]], start: int) -> None:
    bits = reader(np.concatenate([fixed(value, count) for value, count in pairs]), start)
    for value, count in pairs:
        assert bits.fixed(count) == value & ((1 << count) - 1)
    assert bits.at == start + sum(count for _, count in pairs)


def test_the_lowest_bit_comes_first() -> None:
    assert pack_flags([np.zeros(5, np.uint8), fixed(0b1011, 4)]) == bytes([0b01100000, 0b1])


@pytest.mark.parametrize(("plain", "code"), [(0, "1110"), (1, "101"), (2, "011")])
def test_rice_codes_are_those_of_the_format(plain: int, code: str) -> None:
    assert "".join(map(str, rice(np.array([-2], np.int8), plain))) == code


@pytest.mark.parametrize("plain", range(8))
@pytest.mark.parametrize("most", [15, 31])
@pytest.mark.parametrize("sign", [-1, 1])
def test_rice_codes_out_of_range_are_refused(plain: int, most: int, sign: int) -> None:
    for beyond in (0, 1, 50):
        flags = rice(np.array([0, sign * (most + beyond)], np.int8), plain)
        assert (reader(flags, 3).rice(2, plain, most) is None) == (beyond > 0)


@pytest.mark.parametrize(("value", "code"), [(0, "1"), (1, "010"), (4, "00101"), (4_096, 12 * "0" + "1000000000001")])
def test_gamma_codes_are_those_of_the_format(value: int, code: str) -> None:
    assert "".join(map(str, gamma([value]))) == code


def test_gamma_codes_out_of_range_are_refused() -> None:
    assert reader(gamma([4_097])).gamma(4_096) == -1
    assert Reader(np.zeros(100, np.uint8)).gamma(4_096) == -1


@given(st.binary(max_size=3), st.integers(0, 60), st.integers(0, 16))
def test_beyond_the_end_all_bits_are_zero(data: bytes, at: int, count: int) -> None:
    bits = Reader(np.frombuffer(data, np.uint8))
    bits.at = at
    assert bits.fixed(count) == int.from_bytes(data, "little") >> at & ((1 << count) - 1)
