"""The repository as its tests see it: tracked files, rooms in their order, and who imports whom."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent

ORDER = [
    {"closing", "errors", "limits", "version"},
    {"document", "extras", "parallel", "progress", "words"},
    {"digest", "disk", "glossary", "native"},
    {"ref", "tensors"},
    {"settings"},
    {"bucket"},
    {"checkpoint", "result", "signature"},
    {"mask"},
    {"live"},
    {"analysis", "codec", "store", "train/optim"},
    {"artifact", "device"},
    {"update"},
    {"catalog", "exchange"},
    {"flow", "registry"},
    {"reports", "train"},
    {"workspace"},
    {"service", "sync"},
    {"maskreg"},  # maskreg/__init__.py, the names for people who write Python
    {"cli", "migrations"},
    {"__main__"},  # maskreg/__main__.py, which starts the command line
]
"""The rooms of the product: each imports from earlier lines only, never from its own line."""

RANK = {room: rank for rank, line in enumerate(ORDER) for room in line}

IMPORTED_AS = {"maskreg": "maskreg", "cli": "maskreg_cli", "migrations": "maskreg_migrations"}
"""The product's folders, and the packages that they are."""

TABLE = re.compile(r"(?<=<!-- rooms -->\n).*?(?=<!-- /rooms -->)", re.DOTALL)
"""Where CONTRIBUTING.md has the table of rooms."""

Graph = Mapping[str, Iterable[str]]


@cache
def tracked() -> tuple[Path, ...]:
    """Every tracked file that exists, relative to the repository."""
    # The files can belong to another user than the one who tests, as in a container.
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    names = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(Path(name) for name in names if name and (ROOT / name).exists())


def modules(*folders: str) -> list[Path]:
    """Python files in these folders, or all."""
    return [path for path in tracked() if path.suffix == ".py" and (not folders or path.parts[0] in folders)]


def product() -> list[Path]:
    """Python files of the product."""
    return modules(*IMPORTED_AS)


@cache
def tree(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse((ROOT / path).read_text(), str(path))


def dotted(path: Path) -> str:
    """``maskreg/codec/__init__.py`` as ``maskreg.codec``, ``cli/main.py`` as ``maskreg_cli.main``."""
    parts = list(path.with_suffix("").parts)
    parts[0] = IMPORTED_AS.get(parts[0], parts[0])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(path: Path) -> str:
    """The room that a file of the product belongs to."""
    return room_of(dotted(path))


def room_of(name: str) -> str:
    """The room that an imported name belongs to; empty when it is not of the product."""
    top, _, rest = name.partition(".")
    if top in ("maskreg_cli", "maskreg_migrations"):
        return top.removeprefix("maskreg_")
    if top != "maskreg":
        return ""
    names = rest.split(".")
    return next((room for room in ("/".join(names[:2]), names[0]) if room in RANK), "maskreg")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Full names that a file imports, and the line: modules, and names in them.

    Imports inside functions and those for type checkers count.
    """
    package = dotted(path) if path.name == "__init__.py" else dotted(path).rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


@cache
def module_graph() -> Mapping[str, Mapping[str, str]]:
    """For every module of the product, the others that it imports, and where: ``path:line``."""
    names = {dotted(path): path for path in product()}
    graph: dict[str, dict[str, str]] = {name: {} for name in names}
    for name, path in names.items():
        for full, line in imports(path):
            module = full if full in names else full.rpartition(".")[0]
            if module in names and module != name:
                graph[name].setdefault(module, f"{path}:{line}")
    return graph


def folder_graph(package: str) -> dict[str, dict[str, str]]:
    """The same for the modules and packages directly in a package: what is in a child counts as the child."""
    depth = package.count(".") + 2

    def child(name: str) -> str:
        return ".".join(name.split(".")[:depth]) if name.startswith(f"{package}.") else ""

    graph: dict[str, dict[str, str]] = {child(name): {} for name in module_graph() if child(name)}
    for name, targets in module_graph().items():
        for target, line in targets.items():
            if child(name) and child(target) and child(name) != child(target):
                graph[child(name)].setdefault(child(target), line)
    return graph


def circle(graph: Graph) -> list[str]:
    """Some circle, its first node repeated at its end; empty when there is none.

    Depth first: a node whose targets are all done is done; a target on the current path closes a circle.
    """
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            if result := visit(target, [*path, node]):
                return result
        done.add(node)
        return []

    return next((result for node in sorted(graph) if (result := visit(node, []))), [])


def explained(graph: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Some circle of a graph, a line for each import in it; empty when there is none."""
    return [f"{graph[a][b]}: {a} imports {b}" for a, b in pairwise(circle(graph))]


def sentence(room: str) -> str:
    """The first paragraph of a room's docstring, in one line."""
    paths = (
        ("maskreg/__init__.py",)
        if room == "maskreg"
        else (f"{room}/__init__.py", f"maskreg/{room}/__init__.py", f"maskreg/{room}.py")
    )
    path = next(path for path in map(Path, paths) if (ROOT / path).exists())
    text = " ".join((ast.get_docstring(tree(path)) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`", "`", text).replace("``", "`")


def table() -> str:
    """The rooms as a Markdown table: line, room, and what its docstring says."""
    rows = [f"| {rank} | `{name}` | {sentence(name)} |" for rank, line in enumerate(ORDER, 1) for name in sorted(line)]
    return "\n".join(["| line | room | what it is |", "|--:|---|---|", *rows]) + "\n"
