from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.checkpoint.safetensors import build_header, header_length, parse_header
from maskreg.errors import CorruptError, FormatError, LimitError, MaskregError
from maskreg.tensors.info import ITEM_BYTES, TensorInfo
from tests.checkpoint.upstream import upstream_tensors
from tests.checkpoints import header_bytes
from tests.limited import limited


def entry(begin: int, end: int, shape: list[Any], dtype: Any = "BF16") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {
    "__metadata__": {"format": "pt"},
    "b": entry(0, 8, [2, 2]),
    "empty": entry(8, 8, [0, 7]),
    "a": entry(8, 10, []),
    "../../etc/x": entry(10, 14, [1], "F32"),
}


def test_tensors_come_in_the_order_of_their_data() -> None:
    shuffled = {name: GOOD[name] for name in ("a", "../../etc/x", "empty", "__metadata__", "b")}
    shard = parse_header(header_bytes(shuffled), 14, "x.safetensors")
    assert [info.name for info in shard.tensors] == ["b", "empty", "a", "../../etc/x"]
    assert shard.metadata == {"format": "pt"}
    assert shard.header == header_bytes(shuffled)
    assert shard.data_bytes == 14


def test_a_file_of_no_tensors_is_a_checkpoint() -> None:
    assert parse_header(header_bytes({}), 0, "x.safetensors").tensors == ()


BAD = {
    "overlap": ({"a": entry(0, 4, [2]), "b": entry(2, 6, [2])}, 6),
    "gap": ({"a": entry(0, 4, [2]), "b": entry(6, 10, [2])}, 10),
    "does not begin at 0": ({"a": entry(2, 6, [2])}, 6),
    "two tensors at one offset": ({"a": entry(0, 4, [2]), "b": entry(0, 4, [2])}, 4),
    "size and shape differ": ({"a": entry(0, 4, [3])}, 4),
    "end before begin": ({"a": entry(4, 0, [2])}, 4),
    "unknown dtype": ({"a": entry(0, 4, [2], "BF17")}, 4),
    "dtype is a list": ({"a": entry(0, 4, [2], ["BF16"])}, 4),
    "negative": ({"a": entry(0, 4, [-2])}, 4),
    "true is not 1": ({"a": entry(0, 2, [True])}, 2),
    "1.0 is not 1": ({"a": entry(0, 2, [1.0])}, 2),
    "three offsets": ({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 2, 4]}}, 4),
    "missing key": ({"a": {"dtype": "BF16", "shape": [2]}}, 4),
    "surplus key": ({"a": {**entry(0, 4, [2]), "stride": [1]}}, 4),
    "entry is a list": ({"a": []}, 0),
    "metadata number": ({"__metadata__": {"a": 1}}, 0),
    "metadata list": ({"__metadata__": []}, 0),
    "metadata surrogate": ({"__metadata__": {"a": "\ud800"}}, 0),
    "empty name": ({"": entry(0, 4, [2])}, 4),
    "newline in a name": ({"a\nb": entry(0, 4, [2])}, 4),
    "NUL in a name": ({"a\0b": entry(0, 4, [2])}, 4),
    "C1 in a name": ({"a\x9bb": entry(0, 4, [2])}, 4),
    "surrogate in a name": ({"a\ud800": entry(0, 4, [2])}, 4),
}


@pytest.mark.parametrize("case", BAD)
def test_what_the_format_forbids(case: str) -> None:
    document, data_bytes = BAD[case]
    text = json.dumps(document).encode()
    with pytest.raises(FormatError, match=r"x\.safetensors"):
        parse_header(len(text).to_bytes(8, "little") + text, data_bytes, "x.safetensors")


TEXTS = {
    "key twice": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}',
    "key twice inside": b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "not UTF-8": b'{"\xff":{}}',
    "not JSON": b"{nope}",
    "space first": b" {}",
    "a list": b"[]",
    "empty": b"",
    "surplus": b"{}{}",
    "a number too long": b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,0]}}',
    "NaN": b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}',
}


@pytest.mark.parametrize("case", TEXTS)
def test_text_that_is_no_header(case: str) -> None:
    text = TEXTS[case]
    with pytest.raises(FormatError):
        parse_header(len(text).to_bytes(8, "little") + text, 0, "x.safetensors")


@pytest.mark.parametrize(
    "document",
    [
        {"a": entry(0, 0, [0, 1 << 64])},
        {"a": entry(0, 0, [0] * 65)},
        {"a": entry(0, 1 << 65, [1 << 32, 1 << 32], "U8")},
        {"n" * 1025: entry(0, 0, [0])},
        {"é" * 513: entry(0, 0, [0])},
        {"a": entry(0, 0, [[[0]]])},
    ],
)
def test_limits(document: dict[str, Any]) -> None:
    with pytest.raises(LimitError):
        parse_header(header_bytes(document), 0, "x.safetensors")


def test_too_many_tensors() -> None:
    document = {str(n): entry(0, 0, [0]) for n in range(11)}
    with limited(tensors=10), pytest.raises(LimitError, match=r"\b11\b.*\b10\b"):
        parse_header(header_bytes(document), 0, "x.safetensors")


@pytest.mark.parametrize("data_bytes", [0, 13, 15])
def test_a_file_that_is_cut_or_has_more(data_bytes: int) -> None:
    with pytest.raises(CorruptError, match=rf"\b{data_bytes}\b.*\b14\b"):
        parse_header(header_bytes(GOOD), data_bytes, "x.safetensors")


def test_length() -> None:
    assert header_length((5).to_bytes(8, "little"), 13, "x") == 5
    for first, size in [(b"", 0), (b"\1\0\0", 3), ((6).to_bytes(8, "little"), 13), (b"\xff" * 8, 1 << 40)]:
        with pytest.raises(FormatError):
            header_length(first, size, "x")
    with limited(safetensors_header_bytes=100), pytest.raises(LimitError):
        header_length((101).to_bytes(8, "little"), 1000, "x")


names = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
infos = st.dictionaries(
    names.filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(sorted(ITEM_BYTES)), st.lists(st.integers(0, 5), max_size=4)),
    max_size=6,
).map(lambda forms: [TensorInfo(name, dtype, tuple(shape)) for name, (dtype, shape) in forms.items()])


@given(infos, st.dictionaries(names, names, max_size=2))
def test_what_is_built_parses_to_the_same(tensors: list[TensorInfo], metadata: dict[str, str]) -> None:
    header = build_header(tensors, metadata)
    assert len(header) % 8 == 0
    shard = parse_header(header, sum(info.nbytes for info in tensors), "x")
    assert sorted(shard.tensors, key=str) == sorted(tensors, key=str)
    assert shard.metadata == metadata


@given(infos)
def test_agrees_with_the_formats_own_library(tensors: list[TensorInfo]) -> None:
    header = build_header(tensors, {})
    data = bytes(sum(info.nbytes for info in tensors))
    upstream = {name: item[:2] for name, item in upstream_tensors(header + data).items()}
    assert upstream == {info.name: (info.dtype, info.shape) for info in tensors}


SAMPLE = header_bytes(GOOD)


def parse_file(file: bytes) -> Any:
    length = header_length(file[:8], len(file), "x")
    return parse_header(file[: 8 + length], len(file) - 8 - length, "x")


@settings(max_examples=600)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE) + 13), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=3
    )
)
def test_a_mutated_file_is_refused_or_still_good(edits: list[tuple[int, bytes, int]]) -> None:
    file = SAMPLE + bytes(14)
    for offset, piece, cut in edits:
        file = file[:offset] + piece + file[offset + cut :]
    try:
        shard = parse_file(file)
    except MaskregError:
        return
    # What we accept, the format's own library reads in the same way.
    upstream = {name: item[:2] for name, item in upstream_tensors(file).items()}
    assert upstream == {info.name: (info.dtype, info.shape) for info in shard.tensors}


@settings(max_examples=300)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["dtype", "shape", "data_offsets", "entry", "__metadata__"]),
)
def test_no_value_in_a_header_escapes_as_another_error(value: Any, where: str) -> None:
    document: dict[str, Any] = {"a": entry(0, 4, [2])}
    if where == "__metadata__":
        document[where] = value
    elif where == "entry":
        document["a"] = value
    else:
        document["a"][where] = value
    text = json.dumps(document).encode()
    with contextlib.suppress(MaskregError):
        parse_file(len(text).to_bytes(8, "little") + text + bytes(4))
