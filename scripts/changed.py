"""The tests of what has changed since main: of the changed modules' rooms, and of the rooms that import these modules.

    python -m scripts.changed [BASE]     one path of tests in a line; BASE is where this branch left main by default

What has changed are the commits since BASE, the working tree and new files. A changed module of tests or scripts runs
every test that imports it, if only through others; a page runs the tests of documentation, and any other file those
of the repository. ``tests/repository.py`` knows the rooms and who imports whom; it is what forbids circles.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from tests.repository import IMPORTED_AS, ROOT, dotted, imports, module_graph, modules, room, room_of

SHAPE = ("tests/test_architecture.py",)
"""Runs after any change."""

DOCUMENTATION = ("tests/test_docs.py", "tests/test_site.py")
REPOSITORY = "tests/test_release.py"


def changed(base: str = "") -> list[Path]:
    """Files that differ from ``base``, and new ones."""
    base = base or (_git("merge-base", "HEAD", "main") or ["HEAD"])[0]
    return [Path(name) for name in (*_git("diff", "--name-only", base), *_git("ls-files", "-o", "--exclude-standard"))]


def tests_of(paths: Iterable[Path]) -> list[str]:
    """The folders and files of tests to run."""
    return sorted({*SHAPE, *(test for path in paths for test in _tests_of(path) if (ROOT / test).exists())})


def _tests_of(path: Path) -> Iterator[str]:
    top = path.parts[0]
    if top in IMPORTED_AS and path.suffix == ".py":
        product, own = module_graph(), room(path)
        # What a room offers of a module is often imported from its folder: all of the room that leads to it counts.
        reached = closure({dotted(path)}, {name: targets for name, targets in product.items() if room_of(name) == own})
        importers = {room_of(name) for name, targets in product.items() if reached & set(targets)}
        for each in {own, *importers}:
            yield from (f"tests/{each}", f"tests/test_{each}.py")
    elif path.suffix == ".py":
        names = {dotted(test): test for test in modules("tests", "scripts")}
        graph = {
            name: {word for full, _ in imports(test) for word in (full, full.rpartition(".")[0])}
            for name, test in names.items()
        }
        for test in (names[name] for name in closure({dotted(path)}, graph) if name in names):
            if test.name.startswith("test_"):
                yield str(test)
            elif test.name == "conftest.py" and len(test.parts) > 2:
                yield str(test.parent)
    elif path.suffix == ".md" or top in ("docs", "demo", "mkdocs.yml"):
        yield from DOCUMENTATION
    else:
        yield REPOSITORY


def closure(names: set[str], graph: Mapping[str, Container[str]]) -> set[str]:
    """These names and all that lead to them."""
    while more := {
        name for name, targets in graph.items() if name not in names and any(each in targets for each in names)
    }:
        names = names | more
    return names


def _git(*args: str) -> list[str]:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split()


if __name__ == "__main__":
    print("\n".join(tests_of(changed(*sys.argv[1:2]))))
