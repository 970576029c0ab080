"""Pickles are read without running anything of them."""

from __future__ import annotations

import collections
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint.unpickler import Names, load
from maskreg.errors import DataError, FormatError, LimitError
from maskreg.limits import Limits

NAMES = Names(
    makers={"collections.OrderedDict": lambda *args: {}}, records=frozenset({"tests.checkpoint.test_unpickler.Point"})
)


class Point:
    """A class that a pickle may name."""

    def __init__(self, x: int) -> None:
        self.x = x


class Runs:
    """Runs a command where it is unpickled."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


def read(value: Any, protocol: int = 2, limits: Limits = Limits()) -> Any:  # noqa: B008  # immutable
    return load(pickle.dumps(value, protocol), NAMES, "x.pt", limits=limits)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_what_they_were(protocol: int) -> None:
    shared = ["a", 1.5]
    value: dict[object, object] = {
        "numbers": [0, 255, 256, 65535, -1, 1 << 31, -(1 << 40), 1 << 200, 2.5, float("inf")],
        "constants": (None, True, False),
        "texts": ["", "ü€😀", "x" * 300, "\ud800"],
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "shared": [shared, shared],
        "empty": [{}, []],
        3: {"deep": {"deeper": [{}]}},
    }
    assert read(value, protocol) == value
    assert read({1, 2, 3}, 4) == [1, 2, 3]
    if protocol > 2:
        assert read([b"", b"x" * 300], protocol) == [b"", b"x" * 300]
    assert read(collections.OrderedDict(b=1, a=2), protocol) == {"b": 1, "a": 2}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("function", "name"), [(os.system, "posix.system"), (eval, "builtins.eval"), (getattr, "builtins.getattr")]
)
def test_what_would_run_is_refused_by_its_name(tmp_path: Path, protocol: int, function: Any, name: str) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(FormatError) as caught:
        read({"w": Runs(function, f"touch {mark}")}, protocol)
    assert f"x.pt: its pickle names {name}" in caught.value.message
    assert caught.value.hint == "save the weights alone: torch.save(model.state_dict(), PATH)"
    assert not mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02.",
        b"\x80\x02]R.",
        b"\x80\x02)R.",
        b"\x80\x02h\x07.",
        b"\x80\x02e.",
        b"\x80\x02(.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02K\x01K\x02K\x03s.",
        b"\x80\x02K\x01}b.",
        b"\x80\x02}]K\x01s.",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x02U\x03ab",
        b"\x80\x02X\x02\0\0\0\xff\xff.",
        b"\x80\x02ccollections\nOrderedDict.",
        b"\x80\x02ccollections\nOrderedDict\n}R.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02K\x01K\x02\x93.",
        b"\x80\x02P0\n.",
        b"\x80\x02I1\n.",
        b"\x80\x02" + b"c" + b"x" * 2000,
        b"",
        b"\x80",
    ],
)
def test_a_damaged_program_is_refused(program: bytes) -> None:
    with pytest.raises(FormatError, match=r"x.pt: "):
        load(program, NAMES, "x.pt")


def test_keys_are_what_can_be_compared_quickly() -> None:
    nested: tuple[Any, ...] = ()
    for _ in range(100):
        nested = (nested,)
    assert read({("a", 1): 2, None: 3}) == {("a", 1): 2, None: 3}
    for key in (nested, tuple(range(17))):
        with pytest.raises(FormatError, match="neither text nor numbers"):
            read({key: 1})


def test_limits_hold() -> None:
    with pytest.raises(LimitError, match="the limit is 100"):
        read("x" * 200, limits=Limits(pickle_bytes=100))
    with pytest.raises(LimitError, match="over 100 instructions"):
        read(list(range(200)), limits=Limits(pickle_steps=100))
    # A number in a memo takes no memory of its own.
    assert load(b"\x80\x02K\x01r\xff\xff\xff\xff.", NAMES, "x.pt") == 1


def test_a_dictionary_is_never_made_of_a_list() -> None:
    from maskreg.checkpoint.pickled import NAMES as TENSORS

    class Copies:
        def __reduce__(self) -> Any:
            return collections.OrderedDict, ([("a", 1)],)

    with pytest.raises(FormatError, match="made with items"):
        load(pickle.dumps(Copies(), 2), TENSORS, "x.pt")


def test_any_cut_and_any_changed_byte_is_refused_or_read() -> None:
    data = pickle.dumps({"a": [Point(1), (2.5, "x")], "b": collections.OrderedDict(c=b"y")}, 4)
    for at in range(len(data)):
        with pytest.raises(DataError):
            load(data[:at], NAMES, "x.pt")
        for change in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= change
            try:
                load(bytes(changed), NAMES, "x.pt")
            except DataError as error:
                assert error.message.startswith("x.pt: ")
