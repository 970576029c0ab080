"""JSON: one form to write, and everything odd refused before it costs anything."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg import document
from maskreg.document import canonical, decoded, parse, parse_object
from maskreg.errors import DataError, FormatError, LimitError

MANY = 1 << 20

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars.filter(lambda v: not isinstance(v, str) or v.isprintable()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values)
def test_written_and_read_again(value: Any) -> None:
    data = canonical(value)
    assert parse(data, "x", max_bytes=MANY) == value
    assert canonical(parse(data, "x", max_bytes=MANY)) == data


def test_the_canonical_form() -> None:
    value = {"b": [1, 2.5, None, True], "a": 'é\n"', "Ω": {}}
    assert canonical(value) == '{"a":"é\\n\\"","b":[1,2.5,null,true],"Ω":{}}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}])
def test_what_is_not_json_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical(value)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b" ", b"{", b"}", b"[1,]", b"{'a':1}", b'{"a":1,}', b"nul", b"01", b"+1", b"1.", b".5", b"{}{}"),
        *(b"{} x",),
        *(b"NaN", b"Infinity", b"-Infinity", b'{"a":NaN}', b"[-Infinity]"),
        *(b'{"a":1,"a":2}', b'{"a":{"b":1,"b":1}}', b'[{"x":1,"x":1}]', b'{"a":1,"\\u0061":2}'),
        *(b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf{}", '{"a":1}'.encode("utf-16")),
        *(b'"\n"', b'"\x00"', b'"unclosed', b'"\\x"', b"// {}", b"/**/{}"),
        # What could not be written again, and what takes long to read.
        *(b"1e999", b"[-1e999]", b'"\\ud800"', b'{"\\uDFFF":1}', b'["\\udc00\\ud800"]', b"1" * 100_000),
        *(b'"' + b"\\" * 200_001, b'"' * 300_001, (b'"' + b"a" * 1000) * 301),
    ],
    ids=range(43),
)
def test_what_is_not_well_formed(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^thing\.json: "):
        parse(data, "thing.json", max_bytes=MANY)


@pytest.mark.parametrize("data", [b"[]", b"null", b'"{}"', b"3", b"true"])
def test_an_object_was_expected(data: bytes) -> None:
    parse(data, "x", max_bytes=MANY)
    with pytest.raises(FormatError):
        parse_object(data, "x", max_bytes=MANY)


def test_the_size_is_looked_at_first() -> None:
    assert parse(b"[1]", "x", max_bytes=3) == [1]
    with pytest.raises(LimitError, match=r"^x: 4 .*\b3$"):
        parse(b"\xff\xff\xff\xff", "x", max_bytes=3)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["[", "{", "mixed"]))
def test_the_depth_is_exact(depth: int, limit: int, kind: str) -> None:
    data = nested(depth, kind)
    if depth <= limit:
        parse(data, "x", max_bytes=MANY, max_depth=limit)
    else:
        with pytest.raises(LimitError, match=rf"\b{limit}$"):
            parse(data, "x", max_bytes=MANY, max_depth=limit)


def nested(depth: int, kind: str) -> bytes:
    value: Any = 1
    for level in range(depth):
        as_object = kind == "{" or (kind == "mixed" and level % 2)
        value = {"a": value} if as_object else [value]
    return json.dumps(value).encode()


@pytest.mark.parametrize("data", [b"[" * 500_000, b'{"a":' * 100_000, b"[" * 40 + b"]" * 40])
def test_a_deep_document_never_reaches_the_parser(data: bytes) -> None:
    with pytest.raises(LimitError):
        parse(data, "x", max_bytes=MANY)


@pytest.mark.parametrize("text", ["[" * 100, '"[{' * 50, "\\[" * 50, '\\"[' * 50, "]" * 100, "\\" * 7 + "[" * 50])
def test_brackets_inside_texts_do_not_count(text: str) -> None:
    value = [{"k" + text: text}, text]
    assert parse(json.dumps(value).encode(), "x", max_bytes=MANY, max_depth=2) == value


def test_escaped_pairs_are_characters() -> None:
    assert parse(b'"\\ud83d\\ude00"', "x", max_bytes=MANY) == "\N{GRINNING FACE}"
    assert parse(b'"\\\\ud800"', "x", max_bytes=MANY) == "\\ud800"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    try:
        parse(data, "x", max_bytes=MANY)
    except DataError as error:
        assert error.message.startswith("x: ")


@pytest.mark.parametrize("end", [b"", b"\\", b"{", b'"'])
def test_a_string_without_an_end_is_read_once(end: bytes) -> None:
    # Sought again from each of its quotes, a document of this size would take a day.
    data = b"[" * 32 + b'{"' + b'\\"' * (1 << 20) + end
    with pytest.raises(DataError):
        parse(data, "x", max_bytes=1 << 22)


def test_values_are_counted_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "DECODER", None)
    for data in (b"[" + b"[]," * 1000 + b"0]", b"[" + b"{}," * 1000 + b"0]", b"[" + b"1," * 2000 + b"0]"):
        with pytest.raises(LimitError, match=r"\b1000\b"):
            parse(data, "x", max_bytes=MANY, max_values=1000)


@dataclass(frozen=True)
class Row:
    name: str
    size: int = 0


def test_rows_are_read_as_they_are() -> None:
    assert decoded(list[Row], b'[{"name":"}{","more":[{"a":1}]}]', "x") == [Row("}{")]


@pytest.mark.parametrize(
    "data",
    [
        b'[{"name":1}]',
        b'[{"name":"a","size":true}]',
        b'[{"name":"a","size":1.0}]',
        b'[{"name":"\\ud800"}]',
        b'[{"name":"\xff"}]',
        b'[{"size":1}]',
        b'[{"name":"a"}] x',
        b'[{"name":"a","more":' + b"[" * 100_000,
        b"[" + b"[]," * 100_000 + b"0]",
    ],
)
def test_what_is_not_a_document_of_rows(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^x: "):
        decoded(list[Row], data, "x")


FIRST_USES = """
import os, sys, threading
from maskreg.artifact.manifest import Manifest
from maskreg.catalog.query import SearchResult
from maskreg.catalog.query import Event, Measurement
from maskreg.document import checked
from maskreg.errors import FormatError
from maskreg.exchange.base import Lineage
from maskreg_cli.pipe import Record

kinds = [Manifest, Lineage, Record, SearchResult, Measurement, Event]
sys.setswitchinterval(1e-6)

def use(barrier):
    for kind in kinds:
        barrier.wait()
        # The last fields first: they are the last that become known.
        for name in reversed(kind.__annotations__):
            try:
                checked(kind, {name: {}}, "x")
            except FormatError:
                pass

died = 0
for _ in range(60):
    if not (child := os.fork()):
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=use, args=(barrier,)) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        os._exit(0)
    died += os.waitpid(child, 0)[1] != 0
print(died)
"""


def test_threads_that_read_the_first_documents_together_live() -> None:
    # msgspec 0.22 alone: 58 of the 60 processes die of SIGSEGV.
    done = subprocess.run([sys.executable, "-c", FIRST_USES], check=True, capture_output=True, text=True)
    assert done.stdout == "0\n"
