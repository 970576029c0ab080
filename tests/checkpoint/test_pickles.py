"""Pickles are read without running anything of them, and none crashes the process."""

from __future__ import annotations

import collections
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint.pickles import Record, load_records
from maskreg.errors import DataError, FormatError, LimitError
from tests.limited import limited

NAMES = re.compile(r"collections OrderedDict|tests\.checkpoint\.test_pickles Point")


class Point:
    """A class that a pickle can name."""

    def __init__(self, x: int) -> None:
        self.x = x


class Runs:
    """Runs a command where it is unpickled."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


def read(value: Any, protocol: int = 2) -> Any:
    return load_records(pickle.dumps(value, protocol), NAMES, "x.pt")


@pytest.mark.parametrize("protocol", [2, 4])
def test_what_is_named_becomes_a_record(protocol: int) -> None:
    value = read({"plain": [(1, 2.5), None, "x"], "point": Point(3)}, protocol)
    assert value["plain"] == [(1, 2.5), None, "x"]
    assert isinstance(value["point"], Record)
    assert (type(value["point"]).__name__, value["point"].args, value["point"].state) == ("Point", (), {"x": 3})


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("function", "name"), [(os.system, "posix.system"), (eval, "builtins.eval"), (getattr, "builtins.getattr")]
)
def test_what_would_run_is_refused_by_its_name(tmp_path: Path, protocol: int, function: Any, name: str) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(FormatError) as caught:
        read({"w": Runs(function, f"touch {mark}")}, protocol)
    assert f" {name}," in caught.value.message.replace("__builtin__", "builtins")
    assert "torch.save(model.state_dict(), PATH)" in caught.value.hint
    assert not mark.exists()


POINT = b"ctests.checkpoint.test_pickles\nPoint\n"


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02.",
        b"\x80\x02]R.",
        b"\x80\x02h\x07.",
        b"\x80\x02(.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02K\x01}b.",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x02X\x02\0\0\0\xff\xff.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02K\x01K\x02\x93.",
        b"\x80\x02" + b"c" + b"x" * 2000,
        b"\x80\x02K\x01r\xff\xff\xff\xff.",  # an index for which memory would be reserved
        b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"Ns.",  # a key whose hash overflows the stack
        b"\x80\x02}" + b")q\0" + b"0h\0\x85q\0" * 100_000 + b"Ns.",
        b"\x80\x02" + POINT + b"}X\x01\0\0\0xX\x01\0\0\0ysb.",  # attributes of the class itself
        b"\x80\x02" + POINT + b"N}X\x01\0\0\0xX\x01\0\0\0ys\x86b.",
        b"\x80\x02" + POINT + b")\x81K\x01K\x02s.",
        b"",
    ],
)
def test_a_damaged_or_hostile_program_is_refused(program: bytes) -> None:
    with pytest.raises(FormatError, match=r"x.pt: "):
        load_records(program, NAMES, "x.pt")


def test_limits_hold() -> None:
    with limited(pickle_bytes=100), pytest.raises(LimitError, match=r"\b100$"):
        read("x" * 200)
    with limited(pickle_steps=100), pytest.raises(LimitError, match=r"\b100\b"):
        read(list(range(200)))


def test_any_cut_and_any_changed_byte_is_refused_or_read() -> None:
    data = pickle.dumps({"a": [Point(1), (2.5, "x")], "b": collections.OrderedDict(c=b"y")}, 4)
    for at in range(len(data)):
        for change in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= change
            for damaged in (data[:at], bytes(changed)):
                try:
                    load_records(damaged, NAMES, "x.pt")
                except DataError as error:
                    assert error.message.startswith("x.pt: ")
