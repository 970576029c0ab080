"""Checks that CHANGELOG.md describes the version in ``maskreg/version.py``, and that a release tag names both.

Without a tag, the newest section is "Unreleased" or the version's. With a tag, it is the version's: dated,
with something to say, and nothing left in "Unreleased" above it. Needs no installed package.

  python -m scripts.release_check
  python -m scripts.release_check v0.1.0
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent

UNRELEASED = "Unreleased"


@dataclass(frozen=True)
class Section:
    """A section of the changelog.

    Attributes:
        name: a version, or "Unreleased".
        date: as written; empty when there is none.
        text: everything below the heading.
    """

    name: str
    date: str
    text: str

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers; empty for what is none."""
        return tuple(map(int, self.name.split("."))) if re.fullmatch(r"\d+\.\d+\.\d+", self.name) else ()


def version() -> str:
    """What ``__version__`` is set to, without importing the package."""
    tree = ast.parse((ROOT / "maskreg" / "version.py").read_text(encoding="utf-8"))
    values = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    return str(values[0])


def sections(changelog: str) -> list[Section]:
    """The sections of a changelog, newest first."""
    headings = list(re.finditer(r"^## \[(.+?)\](?: - (.*))?$", changelog, re.MULTILINE))
    ends = [*(heading.start() for heading in headings), len(changelog)][1:]
    return [
        Section(heading[1], heading[2] or "", changelog[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    ]


def problems(version: str, changelog: str, tag: str = "") -> Iterator[str]:
    """What keeps this version from being a release; without a tag, from becoming one."""
    entries = sections(changelog)
    unreleased = [entry for entry in entries[:1] if entry.name == UNRELEASED]
    released = entries[len(unreleased) :]
    yield from (problem for entry in released if (problem := heading_problem(entry)))
    numbers = [entry.release for entry in released]
    if sorted(set(numbers), reverse=True) != numbers:
        yield "CHANGELOG.md: versions must be unique, newest first"
    newest = released[0].name if released else ""
    if not unreleased and newest != version:
        yield f'CHANGELOG.md: begin with a section "{UNRELEASED}" or one for {version}, not {newest or "nothing"}'
    if not tag:
        return
    if tag != f"v{version}":
        yield f"the tag is {tag}, the version is {version}: tag v{version}, or change __version__"
    if newest != version:
        yield f'CHANGELOG.md: a release needs a section "## [{version}] - YYYY-MM-DD"'
    if unreleased and unreleased[0].text:
        yield f'CHANGELOG.md: move what "{UNRELEASED}" says into the section of {version}'


def heading_problem(entry: Section) -> str:
    """What is wrong with the section of a version; empty when nothing is."""
    try:
        date.fromisoformat(entry.date)
    except ValueError:
        return f'CHANGELOG.md: the section of {entry.name} needs a date: "## [{entry.name}] - YYYY-MM-DD"'
    if not entry.release:
        return f"CHANGELOG.md: {entry.name} is no version such as 0.1.0"
    return "" if entry.text else f"CHANGELOG.md: the section of {entry.name} is empty"


def main(tag: str = "") -> int:
    """Check the repository."""
    lines = list(problems(version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), tag))
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
