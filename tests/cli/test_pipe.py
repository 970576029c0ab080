"""What comes down a pipe is taken as it was announced, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from maskreg_cli.pipe import MAX_BYTES, Record, end, read

from maskreg.errors import DataError, PipeError
from maskreg.ref import Ref

DIGEST = "sha256:" + "ab" * 32
ROOT = "sha256:" + "cd" * 32
GOOD: dict[str, Any] = {
    "schema": "maskreg.ref/1",
    "ref": "team/x:v1",
    "digest": DIGEST,
    "kind": "delta",
    "size": 12,
    "source": {"root": ROOT, "hub": "", "params": 3},
    "path": "/somewhere",
    "remote": "lab",
}
OK = end(1)


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_one_record_and_an_end_record() -> None:
    found = read(lines(GOOD, OK))
    assert isinstance(found, Record)
    assert (found.ref, found.digest, found.remote) == ("team/x:v1", DIGEST, "lab")


def test_keys_of_a_newer_version_are_ignored() -> None:
    assert read(lines({**GOOD, "new": [1]}, {**OK, "took": 1})) == read(lines(GOOD, OK))


def test_a_bare_reference() -> None:
    assert read(b"team/x:v1\n") == Ref("team", "x", "v1")
    assert read(b"\n  x  \n\n") == Ref("default", "x")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"\n \n", "empty", id="blank lines"),
        pytest.param(lines(GOOD), "end record", id="no end record"),
        pytest.param(lines(OK), "counts 1", id="only an end record that counts one"),
        pytest.param(lines(end(0)), "0 artifacts", id="only an end record"),
        pytest.param(lines(GOOD, GOOD, end(2)), "2 artifacts", id="several"),
        pytest.param(lines(GOOD, GOOD, OK), "counts 1", id="wrong count"),
        pytest.param(lines(GOOD, {**OK, "count": True}), "counts True", id="count of another type"),
        pytest.param(lines(GOOD, OK, GOOD), "end record", id="something after the end"),
        pytest.param(lines(GOOD, OK, OK), "end record", id="two ends"),
        pytest.param(lines(GOOD, {**OK, "status": "maybe"}), "failed", id="unknown status"),
        pytest.param(lines({**GOOD, "schema": "maskreg.ref/2"}, OK), "speaks 'maskreg.ref/2'", id="newer record"),
        pytest.param(lines(GOOD, {**OK, "schema": "maskreg.end/2"}), "speaks", id="newer end"),
        pytest.param(lines({"hello": 1}, OK), "speaks 'None'", id="other JSON"),
        pytest.param(lines([GOOD], OK), "cut or not a record", id="a list"),
        pytest.param(b'{"schema":"a","schema":"b"}\n', "twice", id="a key twice"),
        pytest.param(lines({**GOOD, "digest": "sha256:../../x"}, OK), "digest", id="a digest that is a path"),
        pytest.param(lines({**GOOD, "ref": "../x"}, OK), "not a reference", id="a reference that is a path"),
        pytest.param(lines({**GOOD, "remote": 12}, OK), "remote", id="a number for a name"),
        pytest.param(lines({k: v for k, v in GOOD.items() if k != "digest"}, OK), "digest", id="no digest"),
        pytest.param(b"one\ntwo\n", "2 references", id="several references"),
        pytest.param(b"Not A Reference\n", "neither", id="one line of talk"),
        pytest.param(b"x\n" + lines(OK), "cut or not a record", id="a reference and an end record"),
        pytest.param(b"\xff\xfe\n", "neither", id="bytes"),
        pytest.param(b" " * (MAX_BYTES + 1), "longer", id="endless"),
    ],
)
def test_anything_else_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(PipeError, match=why) as caught:
        read(data)
    assert isinstance(caught.value, DataError)


def test_a_failure_upstream_is_named() -> None:
    failed = end(0, {"code": "NOT_FOUND", "message": "there is no x", "hint": "", "exit": 66})
    assert failed["status"] == "error"
    with pytest.raises(PipeError, match=r"NOT_FOUND.*\b66\b"):
        read(lines(failed))


def test_every_cut_of_a_good_pipe_is_refused() -> None:
    whole = lines(GOOD, OK)
    for length in range(len(whole) - 1):
        with pytest.raises(PipeError):
            read(whole[:length])
