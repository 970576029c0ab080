"""What JSON documents hold is in the glossary: every key listed, every number defined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maskreg.glossary import FIGURES, Entry
from scripts.glossary import KEYS, meaning
from tests.cli.conftest import Run

NAMED = {
    *("roles", "layers", "modules", "tensors", "dtypes", "parts", "nulls", "stripes"),
    *("mantel_haenszel", "mantel_haenszel_intervals", "by_mlp"),
}
"""Keys whose own keys are names of groups, tensors, dtypes, parts and nulls."""

FREE = {"card", "detail", "recipe"}
"""Keys under which anything may be."""


def keys_of(value: Any, parent: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a document with its value, names and free keys left out."""
    if isinstance(value, list):
        for member in value:
            yield from keys_of(member, parent)
    elif isinstance(value, dict):
        for key, member in value.items():
            if parent in NAMED:
                yield from keys_of(member)
            else:
                yield key, member
                yield from () if key in FREE else keys_of(member, key)


@pytest.fixture
def documents(run: Run, masks: tuple[str, str, str], artifact: str, tmp_path: Path) -> dict[str, Any]:
    run("tag", "two", "two:rlvr-reference")
    comparison = run("compare", *masks, "--stripes", "--record", "--consensus-map", tmp_path / "map.npz", "--json").json
    # Masks have no directions: an update beside itself has.
    comparison["updates"] = run("compare", artifact, artifact, "--updates", "--json").json["updates"]
    return {"compare": comparison, "show": run("show", "one", "--json").json, "log": run("log", "one", "--json").json}


@pytest.mark.parametrize("command", KEYS)
def test_every_key_is_listed_and_every_number_defined(documents: dict[str, Any], command: str) -> None:
    pairs = list(keys_of(documents[command]))
    assert {key for key, _ in pairs} - {"id"} == set(KEYS[command])
    numbers = {key for key, value in pairs if isinstance(value, int | float) and not isinstance(value, bool)} - {"id"}
    words = {key: meaning(key) for key in numbers}
    assert [key for key, word in words.items() if not isinstance(word, Entry) or word.name not in FIGURES] == []
