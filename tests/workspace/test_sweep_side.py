"""A side of a sweep: what lies in a bucket travels once where it fits into memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import maskreg
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.ahead import HeldCheckpoint
from maskreg.errors import MaskregError
from maskreg.workspace.verbs.sweep import SweepSide, room_of
from tests.buckets import bucket, client_of, objects_in, server, upload
from tests.servers import S3Server
from tests.workspace.conftest import SOURCE, Lab

__all__ = ["bucket", "server"]

NAME = "model.layers.0.mlp.up_proj.weight"
NUMEL = 64 * 16
ROOM = sum(bits.nbytes for _, bits in SOURCE.values())


@pytest.mark.parametrize("room", [ROOM, ROOM - 1])
def test_what_fits_into_memory_is_read_from_a_bucket_once(
    lab: Lab, ada: maskreg.Workspace, server: S3Server, bucket: str, room: int
) -> None:
    path = upload(server, lab.source, bucket, "source")
    with SweepSide(ada, path, "source", room=room) as side:
        values = side.checkpoint.read(NAME, 0, NUMEL).copy()
        for key in objects_in(server, bucket):
            client_of(server).delete_object(Bucket=bucket, Key=key)
        if room < ROOM:
            with pytest.raises(MaskregError):
                side.checkpoint.read(NAME, 0, NUMEL)
        else:
            assert np.array_equal(side.checkpoint.read(NAME, 0, NUMEL), values)
            assert np.array_equal(side.checkpoint.read(NAME, 3, 7), values[3:7])


def test_the_files_of_a_disk_are_left_to_the_system(lab: Lab, ada: maskreg.Workspace) -> None:
    with SweepSide(ada, lab.source, "source", room=room_of(onto_previous=False)) as side:
        assert not isinstance(side.checkpoint, HeldCheckpoint)
    assert room_of(onto_previous=True) == room_of(onto_previous=False) // 2


def test_what_is_held_is_the_checkpoint_and_another_process_gets_that(lab: Lab) -> None:
    with HeldCheckpoint(open_checkpoint(lab.source)) as held, open_checkpoint(lab.source) as plain:
        for _ in range(2):
            for name, info in plain.tensors.items():
                assert np.array_equal(held.read(name, 0, info.numel), plain.read(name, 0, info.numel))
        assert held.small_files() == plain.small_files()
        assert held.place_of(NAME, 0) == "model.safetensors"
        with pytest.raises(ValueError, match="read-only"):
            held.read(NAME, 0, NUMEL)[0] = 0
        elsewhere = pickle.loads(pickle.dumps(held))  # noqa: S301 # our own
        assert not isinstance(elsewhere, HeldCheckpoint)
        assert np.array_equal(elsewhere.read(NAME, 0, NUMEL), plain.read(NAME, 0, NUMEL))
        elsewhere.close()
