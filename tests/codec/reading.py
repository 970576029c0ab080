"""What the slow decoders read with: bits, lowest first, of blocks that may break any rule."""

from __future__ import annotations


class RefusedError(Exception):
    """The block breaks a MUST of the format."""


def must(holds: bool) -> None:
    if not holds:
        raise RefusedError


class Bits:
    """Bits of ``data`` from ``at`` up to ``end``, lowest first."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data, self.at, self._end = data, at, end

    def take(self, count: int) -> int:
        must(self.at + count <= self._end)
        value = 0
        for i in range(count):
            value |= (self._data[self.at // 8] >> self.at % 8 & 1) << i
            self.at += 1
        return value

    def line(self, length: int, most: int) -> list[int]:
        return self.rice(length, self.take(3), most)

    def rice(self, length: int, k: int, most: int) -> list[int]:
        values = []
        for _ in range(length):
            quotient = 0
            while self.take(1):
                quotient += 1
            folded = quotient << k | self.take(k)
            value = -(folded + 1) // 2 if folded % 2 else folded // 2
            must(abs(value) <= most)
            values.append(value)
        return values

    def gamma(self) -> int:
        zeros = 0
        while not self.take(1):
            zeros += 1
        value = 1
        for _ in range(zeros):
            value = 2 * value + self.take(1)
        return value - 1
