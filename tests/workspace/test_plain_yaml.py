"""YAML that a person wrote: texts, lists and mappings; what would be costly or ambiguous is refused by line."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from maskreg.errors import FormatError, LimitError
from maskreg.limits import Limits
from maskreg.workspace.plain_yaml import read_yaml

HINT = "what it looks like"


def read(folder: Path, text: str | bytes, limits: Limits | None = None) -> object:
    path = folder / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path, "recipe", hint=HINT, limits=limits or Limits())


def test_scalars_are_texts_whatever_they_look_like(tmp_path: Path) -> None:
    text = "a: [no, 1e-3, 2026-01-02, 2001-99-99, ~, 0x10, .nan]\nb: {c: '1', d: }\n"
    dates = ["no", "1e-3", "2026-01-02", "2001-99-99", "~", "0x10", ".nan"]
    assert read(tmp_path, text) == {"a": dates, "b": {"c": "1", "d": ""}}
    # More digits than Python makes a number of.
    assert read(tmp_path, "a: " + "9" * 5000) == {"a": "9" * 5000}
    assert read(tmp_path, "") is None
    assert read(tmp_path, "a: b\n".encode("utf-16")) == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' appears twice"),
        ("a: {b: 1, b: 2}\n", "line 1: the key 'b' appears twice"),
        ("a: &x [1]\nb: *x\n", r"line 2: an alias \(\*x\)"),
        ("a: &x [*x]\n", "line 1: an alias"),
        ("a: !!python/object/apply:os.system ['true']\n", "line 1: a tag .*os.system"),
        ("a: !!float 1\n", "line 1: a tag"),
        ("? [a]\n: b\n", "line 1: a key that is no text"),
        ("[" * 5000, "line 1: nested more than 32 levels deep"),
        ("a: [\n", "not YAML"),
        ("a: 1\n---\nb: 2\n", "not YAML: expected a single document"),
        (b"a: \xff\xfe\n", "not YAML"),
        (b"a: \x00\n", "not YAML"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said) as raised:
        read(tmp_path, text)
    assert raised.value.hint == HINT


def test_no_more_is_read_than_a_recipe_may_have(tmp_path: Path) -> None:
    limits = Limits(manifest_bytes=1000)
    assert read(tmp_path, "a: " + "x" * 997, limits) == {"a": "x" * 997}
    with pytest.raises(LimitError, match="more than 1000 bytes"):
        read(tmp_path, "a: " + "x" * 998, limits)
    with pytest.raises(LimitError, match="more than 1000 bytes"):
        read_yaml(Path("/dev/zero"), "recipe", hint=HINT, limits=limits)


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_text, args=("a: b\n",))
    writer.start()
    assert read_yaml(pipe, "recipe", hint=HINT) == {"a": "b"}
    writer.join()
