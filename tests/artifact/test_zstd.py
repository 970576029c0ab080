"""What a frame announces, without expanding it."""

import numpy as np
import pytest

from maskreg.artifact.shards import content_bytes, pack_frame


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 1 << 20, 64 << 20])
def test_every_width_of_the_size_field(size: int) -> None:
    assert content_bytes(pack_frame(np.zeros(size, np.uint8), 1)) == size
