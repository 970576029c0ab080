"""What a frame announces, without expanding it."""

import numpy as np
import pytest

from maskreg.artifact.shards import content_bytes, pack_frame


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 1 << 20])
def test_every_width_of_the_size_field(size: int) -> None:
    assert content_bytes(pack_frame(np.zeros(size, np.uint8), 1)) == size


def test_a_bomb_announces_its_size() -> None:
    bomb = pack_frame(np.zeros(64 << 20, np.uint8), 1)
    assert len(bomb) < 16_384
    assert content_bytes(bomb) == 64 << 20
