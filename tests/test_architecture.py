"""The shape of the repository: who imports whom, how long files are, what is documented, what starts light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent

ORDER = [
    {"errors", "limits", "version"},
    {"disk", "document", "glossary", "jit", "parallel", "progress", "words"},
    {"digest"},
    {"ref", "settings", "tensors"},
    {"checkpoint", "rules"},
    {"mask"},
    {"live"},
    {"analysis", "codec", "store", "train/optim"},
    {"artifact", "device"},
    {"update"},
    {"catalog"},
    {"flow", "registry"},
    {"report", "train"},
    {"workspace"},
    {"maskreg"},  # maskreg/__init__.py, the names for people who write Python
    {"cli", "migrations"},
    {"__main__"},  # maskreg/__main__.py, which starts the command line
]
"""The rooms of the product: each imports from earlier lines only, never from its own line."""

RANK = {room: rank for rank, line in enumerate(ORDER) for room in line}

HOMES = {
    "alembic": {"catalog", "migrations"},
    "boto3": {"store"},
    "botocore": {"store"},
    "click": {"cli"},
    "fastapi": set[str](),
    "httpx": set[str](),
    "huggingface_hub": {"checkpoint"},
    "jinja2": {"report", "train"},
    "llvmlite": {"codec", "jit", "train/optim"},
    "matplotlib": {"report"},
    "numba": {"codec", "jit", "train/optim"},
    "numcodecs": {"artifact"},
    "psycopg": {"catalog"},
    "pydantic": {"artifact", "cli"},
    "rich": {"cli"},
    "safetensors": set[str](),
    "sqlalchemy": {"catalog", "migrations"},
    "tomlkit": {"settings"},
    "transformers": {"live", "train"},
    "triton": {"codec", "train/optim"},
    "zarr": {"artifact", "store"},
}
"""The only rooms that may import these; whatever is not here may be imported anywhere."""

PORTABLE = ["tensors", "rules", "mask", "live", "analysis", "codec", "train/optim"]
"""Rooms that run wherever numpy and torch are."""

NOT_PORTABLE = {"zarr", "boto3", "sqlalchemy", "pydantic"}

HEAVY = {
    "torch",
    "numpy",
    "zarr",
    "numba",
    "boto3",
    "sqlalchemy",
    "httpx",
    "fastapi",
    "rich",
    "pydantic",
    "triton",
    "matplotlib",
    "jinja2",
}
"""What the command line does not import to say how it is used."""

TOP_LEVEL = {
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "MANIFEST.in", "README.md",
    "SECURITY.md", "cli", "compose.yaml", "docs", "maskreg", "migrations", "pyproject.toml", "scripts", "tests",
}  # fmt: skip
"""What the repository's top holds, besides names that begin with a dot."""

DRAWERS = {"utils", "util", "helpers", "helper", "common", "core", "misc"}
"""Names of modules that say nothing about what is in them."""

MAX_LINES = 400

CHECKING = "TYPE_CHECKING"

UNFINISHED = re.compile(r"\b(TODO|FIXME|NotImplementedError)\b|@pytest\.mark\.(skip|xfail)\b")


@cache
def tracked() -> tuple[Path, ...]:
    """Every tracked file that is there, relative to the repository."""
    # The files may belong to another user than the one who tests, as in a container.
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    names = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(Path(name) for name in names if name and (ROOT / name).exists())


def modules(*folders: str) -> list[Path]:
    """Python files in these folders, or all."""
    return [path for path in tracked() if path.suffix == ".py" and (not folders or path.parts[0] in folders)]


PRODUCT = modules("maskreg", "cli", "migrations")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), str(path))


def room(path: Path) -> str:
    """The room that a file of the product belongs to."""
    return room_of(dotted(path))


def dotted(path: Path) -> str:
    """``maskreg/codec/__init__.py`` as ``maskreg.codec``, ``cli/main.py`` as ``maskreg_cli.main``."""
    parts = list(path.with_suffix("").parts)
    parts[0] = {"cli": "maskreg_cli", "migrations": "maskreg_migrations"}.get(parts[0], parts[0])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, run: bool = False) -> Iterator[tuple[str, int]]:
    """Full names that a file imports, wherever in it, and the line: modules, and what is taken from them.

    Args:
        path: of the file.
        run: leave out what only type checkers import.
    """
    package = dotted(path) if path.name == "__init__.py" else dotted(path).rpartition(".")[0]
    unrun = [node for node in ast.walk(tree(path)) if isinstance(node, ast.If) and ast.unparse(node.test) == CHECKING]
    left_out = {inner for node in unrun for inner in ast.walk(node)} if run else set()
    for node in ast.walk(tree(path)):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def room_of(name: str) -> str:
    """The room that an imported name belongs to; empty when it is not of the product."""
    top, _, rest = name.partition(".")
    if top in ("maskreg_cli", "maskreg_migrations"):
        return top.removeprefix("maskreg_")
    if top != "maskreg":
        return ""
    names = rest.split(".")
    return next((room for room in ("/".join(names[:2]), names[0]) if room in RANK), "maskreg")


def test_the_order_lists_every_room_and_no_other() -> None:
    assert {room(path) for path in PRODUCT} == set(RANK)


def test_imports_point_up() -> None:
    wrong = [
        f"{path}:{line} imports {name}: {there} does not come before {room(path)}"
        for path in PRODUCT
        for name, line in imports(path)
        if (there := room_of(name)) and there != room(path) and RANK[there] >= RANK[room(path)]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {dotted(path): path for path in PRODUCT}

    def module(name: str) -> str:
        return name if name in names else name.rpartition(".")[0]

    needs = {
        here: {module(name) for name, _ in imports(path, run=True)} & set(names) - {here}
        for here, path in names.items()
    }
    # Raises and names the circle when there is one.
    TopologicalSorter(needs).prepare()


def test_other_packages_are_imported_where_they_are_at_home() -> None:
    wrong = [
        f"{path}:{line} imports {top}, which only {sorted(HOMES[top])} may"
        for path in PRODUCT
        for name, line in imports(path)
        if (top := name.partition(".")[0]) in HOMES and room(path) not in HOMES[top]
    ]
    assert wrong == []


def test_no_portable_room_is_home_to_what_is_not_portable() -> None:
    assert not [name for name in NOT_PORTABLE if HOMES[name] & set(PORTABLE)]


def test_portable_rooms_load_nothing_that_is_not_portable() -> None:
    assert (
        loaded(f"import {', '.join('maskreg.' + name.replace('/', '.') for name in PORTABLE)}") & NOT_PORTABLE == set()
    )


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["extract", "--help"]], ids=" ".join)
def test_the_command_line_starts_light(args: list[str]) -> None:
    found = loaded(f"from maskreg_cli.main import main; assert main({args!r}) == 0")
    assert "click" in found
    assert found & HEAVY == set()


def loaded(statement: str) -> set[str]:
    """Top-level names of the modules that are loaded after a statement ran in a fresh interpreter."""
    script = f"{statement}\nimport sys, json\nprint(); print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_no_file_is_long() -> None:
    counts = {path: len((ROOT / path).read_text().splitlines()) for path in modules()}
    assert {str(path): count for path, count in counts.items() if count > MAX_LINES} == {}


def test_no_module_is_a_drawer() -> None:
    assert [str(path) for path in modules() if DRAWERS & set(path.with_suffix("").parts)] == []


def test_the_top_of_the_repository_is_as_agreed() -> None:
    names = {path.parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} - TOP_LEVEL == set()


def test_the_wheel_has_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {dotted(path.parent / "__init__.py") for path in PRODUCT}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(folders)
    assert [name for name in folders if not (ROOT / folder(name) / "__init__.py").exists()] == []


def folder(package: str) -> Path:
    return Path(*package.replace("maskreg_", "", 1).split("."))


def test_public_names_have_docstrings() -> None:
    missing = [
        name
        for path in modules("maskreg", "cli")
        for name, node in public(tree(path), dotted(path))
        if not ast.get_docstring(node)
    ]
    assert missing == []


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(node: Documented, name: str) -> Iterator[tuple[str, Documented]]:
    """A module or class, and the public classes, functions and methods in it."""
    yield name, node
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        inner = f"{name}.{child.name}"
        yield from public(child, inner) if isinstance(child, ast.ClassDef) else [(inner, child)]


def test_every_command_says_what_it_does() -> None:
    from maskreg_cli.main import cli

    assert [" ".join(path) for path, command in commands(cli, ()) if not command.help] == []


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and everything under it, by what one types."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*path, name))


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{path}:{number} {line.strip()}"
        for path in modules()
        for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1)
        # The pattern above is the one line that has these words in it.
        if UNFINISHED.search(line) and not line.startswith("UNFINISHED = ")
    ]
    assert found == []


def test_no_error_is_caught_by_accident() -> None:
    bare = [
        f"{path}:{node.lineno}"
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception")
    ]
    assert bare == []
