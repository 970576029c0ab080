"""What a process remembers is bounded, and what is used stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from maskreg.service.remembered import Remembered


def test_what_was_used_longest_ago_is_forgotten() -> None:
    values: Remembered[str, int] = Remembered(2)
    assert values.put("a", 1) == 1
    values.put("b", 2)
    assert values.get("a") == 1  # used now
    values.put("c", 3)
    assert [values.get(key) for key in "abc"] == [1, None, 3]
    values.put("a", 4)  # replaced, and used now
    values.put("d", 5)
    assert [values.get(key) for key in "acd"] == [4, None, 5]
    assert "a" in values and "c" not in values


def test_many_threads_never_find_a_value_of_another_key() -> None:
    values: Remembered[int, int] = Remembered(8)

    def work(seed: int) -> bool:
        keys = [(seed * 31 + step * 7) % 16 for step in range(2_000)]
        return all(values.put(key, key) == key and values.get(key) in (key, None) for key in keys)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert sum(key in values for key in range(16)) == 8
