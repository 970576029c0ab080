"""Plain, Rice and gamma codes: read back as written, refused when out of range, and never read beyond the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.bits import Flags, Reader, best_rice, fixed, gamma, pack_flags, rice, rice_bits


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


@given(st.lists(st.integers(-31, 31), max_size=100), st.integers(0, 7), st.integers(0, 9))
def test_rice_codes_come_back(values: list[int], plain: int, start: int) -> None:
    line = np.array(values, np.int8)
    flags = rice(line, plain)
    assert flags.size == rice_bits(line, plain)
    bits = reader(flags, start)
    decoded = bits.rice(line.size, plain, 31)
    assert decoded is not None
    assert decoded.tolist() == values
    assert bits.at == start + flags.size


@given(st.lists(st.integers(-128, 127), max_size=100))
def test_the_best_parameter_takes_least(values: list[int]) -> None:
    line = np.array(values, np.int8)
    plain, bits = best_rice(line)
    assert bits == rice_bits(line, plain) == min(rice(line, parameter).size for parameter in range(8))


@pytest.mark.parametrize("plain", range(8))
@pytest.mark.parametrize("most", [15, 31])
@pytest.mark.parametrize("sign", [-1, 1])
def test_rice_codes_out_of_range_are_refused(plain: int, most: int, sign: int) -> None:
    for beyond in (0, 1, 50):
        flags = rice(np.array([0, sign * (most + beyond)], np.int8), plain)
        assert (reader(flags, 3).rice(2, plain, most) is None) == (beyond > 0)


def test_endless_ones_are_no_rice_code() -> None:
    for plain in range(8):
        assert Reader(np.full(100, 255, np.uint8)).rice(1, plain, 31) is None


@given(st.lists(st.integers(0, 4_096), max_size=80), st.integers(0, 9))
def test_gamma_codes_come_back(values: list[int], start: int) -> None:
    flags = gamma(values)
    bits = reader(flags, start)
    assert [bits.gamma(4_096) for _ in values] == values
    assert bits.at == start + flags.size


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


def test_beyond_the_end_values_are_zero() -> None:
    bits = Reader(np.array([0b1011], np.uint8))
    values = bits.rice(6, 1, 31)
    assert values is not None
    # 1 1 0 1 is -3; then there are four zeros, and as many more as it takes.
    assert values.tolist() == [-3, 0, 0, 0, 0, 0]
    assert bits.at == 14
    assert bits.gamma(4_096) == -1
