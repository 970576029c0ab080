"""What the window decides: order, room, places, and what a dead worker gives back."""

from __future__ import annotations

from maskreg.engine.window import DEPTH, WAITING, Batch, Window
from maskreg.engine.worker import Packed


def window(*workers: str, max_bytes: int = 100) -> Window[str]:
    return Window(max_bytes, list(workers))


def packed(size: int) -> Packed:
    return Packed(bytes(size), ())


def add(to: Window[str], near: str = "") -> Batch[str]:
    batch = Batch[str]([0], near)
    to.add(batch)
    list(to.to_hand_out())
    return batch


def test_workers_get_batches_in_turn_until_all_have_enough() -> None:
    two = window("a", "b")
    batches = []
    while two.has_room():
        batches.append(add(two))
    assert [batch.worker for batch in batches] == ["a", "b", "a", "b"]
    assert len(batches) == 2 * DEPTH


def test_finished_batches_wait_in_bounded_number() -> None:
    one = window("a", max_bytes=1 << 30)
    first = add(one)
    count = 1
    while one.has_room():
        one.finish(add(one), packed(1))
        count += 1
    assert count == DEPTH + WAITING
    assert one.front is first


def test_a_single_batch_always_has_room() -> None:
    one = window("a", max_bytes=10)
    one.finish(add(one), packed(1000))
    one.take()
    assert one.has_room()


def test_batches_of_a_place_go_to_one_worker_while_it_is_not_behind() -> None:
    three = window("a", "b", "c")
    assert [add(three, near).worker for near in ("x", "y", "x", "x", "y")] == ["a", "b", "a", "c", "b"]
