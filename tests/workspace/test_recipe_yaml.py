"""A recipe in YAML: texts, lists and mappings; what would be costly or ambiguous is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.errors import FormatError, LimitError
from maskreg.limits import Limits
from maskreg.workspace.verbs.merge_recipe import read_yaml


def read(folder: Path, text: str | bytes) -> object:
    path = folder / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path, limits=Limits(manifest_bytes=10_000))


def test_scalars_are_texts_whatever_they_look_like(tmp_path: Path) -> None:
    text = "a: [no, 1e-3, 2026-01-02, ~, 0x10, .nan]\nb: {c: '1', d: }\nc: !!python/object/apply:os.system ['x']\n"
    values = ["no", "1e-3", "2026-01-02", "~", "0x10", ".nan"]
    assert read(tmp_path, text) == {"a": values, "b": {"c": "1", "d": ""}, "c": ["x"]}
    assert read(tmp_path, "") is None


@pytest.mark.parametrize(
    "text",
    ["a: 1\na: 3\n", "a: &x [1]\nb: *x\n", "? [a]\n: b\n", "[" * 5000, "a: [\n", "a: 1\n---\nb: 2\n", b"a: \xff\xfe\n"],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(FormatError):
        read(tmp_path, text)


def test_no_more_is_read_than_a_recipe_may_have() -> None:
    with pytest.raises(LimitError):
        read_yaml(Path("/dev/zero"), limits=Limits(manifest_bytes=1000))
