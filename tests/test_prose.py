"""Prose that is easy to read: sentences are about a thing or a role, and words that hide it are not used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.repository import ROOT, tracked

HIDES_ITS_SUBJECT = (
    *("whoever", "whosoever", "somebody", "nobody", "everybody", "those of", "that of", "those who", "he who"),
    *("whatever", "all the same", "so much at most", "for no matter"),
)
"""Words in whose place CONTRIBUTING asks for a thing or a role."""

# MAY in capitals is RFC 2119. The sentence about last bits is stored in analyses, and so part of their digests.
MAY = r"(?-i:[Mm]ay)(?! differ between machines)"
WORDS = re.compile(rf"\b(?:{'|'.join(HIDES_ITS_SUBJECT)}|{MAY})\b", re.IGNORECASE)
PROSE = {"", ".c", ".css", ".h", ".html", ".j2", ".js", ".md", ".py", ".toml", ".yaml", ".yml"}
QUOTED = {Path("LICENSE"), Path("maskreg/service/pages/uPlot.iife.min.js"), Path("tests/test_prose.py")}
FOLDERS = {"maskreg", "cli", "migrations", "scripts", "docs", "deploy", "demo", "tests", ".github"}


@pytest.mark.parametrize("folder", ["", *sorted(FOLDERS)])
def test_sentences_are_about_a_thing_or_a_role(folder: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in tracked()
        if path.suffix in PROSE and (path.parts[0] == folder if folder else len(path.parts) == 1)
        if path not in QUOTED
        for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1)
        if WORDS.search(line)
    ]
    assert found == []
