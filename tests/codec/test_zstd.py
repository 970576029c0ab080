"""Frames that cannot expand beyond what was announced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.codec.zstd import content_bytes, pack_frame, unpack_frame
from maskreg.errors import CorruptError


@given(st.binary(min_size=1, max_size=70_000))
def test_round_trip_and_announced_size(data: bytes) -> None:
    frame = pack_frame(np.frombuffer(data, np.uint8), 1)
    assert content_bytes(frame) == len(data)
    assert unpack_frame(frame, len(data), "x").tobytes() == data


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 1 << 20])
def test_every_width_of_the_size_field(size: int) -> None:
    assert content_bytes(pack_frame(np.zeros(size, np.uint8), 1)) == size


def test_a_bomb_is_refused_before_it_expands() -> None:
    bomb = pack_frame(np.zeros(64 << 20, np.uint8), 1)
    assert len(bomb) < 16_384
    with pytest.raises(CorruptError, match="announce 100 bytes"):
        unpack_frame(bomb, 100, "x")


@given(st.binary(max_size=40))
def test_what_is_no_frame_announces_nothing_that_decodes(data: bytes) -> None:
    with pytest.raises(CorruptError):
        unpack_frame(data, 1_000, "x")
