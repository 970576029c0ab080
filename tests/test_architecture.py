"""The shape of the repository: who imports whom, how long files are, what is documented, what starts light."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.repository import (
    IMPORTED_AS,
    RANK,
    ROOT,
    TABLE,
    dotted,
    explained,
    folder_graph,
    imports,
    module_graph,
    modules,
    product,
    room,
    room_of,
    table,
    tree,
)

HOMES = {
    "alembic": {"catalog", "migrations"},
    "cffi": set[str](),
    "click": {"cli"},
    "cryptography": {"signature"},
    "huggingface_hub": {"checkpoint"},
    "jinja2": {"reports", "service", "train"},
    "matplotlib": {"reports"},
    "msgspec": {"artifact", "cli", "document", "exchange"},
    "obstore": {"bucket"},
    "psycopg": {"catalog"},
    "sqlalchemy": {"catalog", "migrations", "service"},
    "transformers": {"live", "train"},
    "triton": {"codec", "live", "train/optim"},
    "truststore": {"store"},
    "zarr": {"artifact", "store"},
    **{name: {"bucket", "store"} for name in ("boto3", "botocore", "urllib3")},
    **{name: {"artifact"} for name in ("google_crc32c", "numcodecs")},
    **{name: {"settings"} for name in ("keyring", "tomlkit")},
    **{name: {"sync"} for name in ("ray", "safetensors", "verl", "vllm")},
    **{name: {"service"} for name in ("authlib", "cachetools", "fastapi", "httpx2", "joserfc", "markdown_it")},
    **{name: {"service"} for name in ("nh3", "opentelemetry", "prometheus_client", "pydantic", "starlette", "uvicorn")},
}
"""The only rooms that can import these; a package that is not here can be imported anywhere."""


MAX_LINES = 700

MAX_BODY = 50
"""Lines of a function, without its docstring."""

MAX_PARAMETERS = 6

DECODING = ("classify_kernel", "decode_kernel", "_value", "_interval", "movers_kernel", "_step")

MANY_PARAMETERS = {
    *(f"maskreg.codec.triton_decode.{name}" for name in DECODING),
    "maskreg.live.triton_leaves.leaf_kernel",
    *("maskreg.train.optim.triton_kernels.accumulate", "maskreg.train.optim.triton_kernels.adamw"),
}
"""Functions that can take more: a Triton kernel takes pointers and sizes one by one."""


UNFINISHED = re.compile(r"\b(TODO|FIXME|NotImplementedError)\b|@pytest\.mark\.(skip|xfail)\b")


PRODUCT = product()


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
    lines = explained(module_graph())
    assert not lines, "\n".join(lines)


def test_no_folders_import_each_other_in_a_circle() -> None:
    """Among what is directly in a package, at every depth."""
    packages = {dotted(path) for path in PRODUCT if path.name == "__init__.py"}
    lines = [
        line for package in sorted(packages) for line in explained(folder_graph(package)) if package != "maskreg.codec"
    ]
    assert not lines, "\n".join(lines)


def test_contributing_shows_the_rooms() -> None:
    shown = TABLE.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert shown == [table()], "write it: python -m scripts.rooms"


def test_other_packages_are_imported_where_they_are_at_home() -> None:
    wrong = [
        f"{path}:{line} imports {top}, which only {sorted(HOMES[top])} can"
        for path in PRODUCT
        for name, line in imports(path)
        if (top := name.partition(".")[0]) in HOMES and room(path) not in HOMES[top]
    ]
    assert wrong == []


def test_no_file_is_long() -> None:
    counts = {path: len((ROOT / path).read_text().splitlines()) for path in modules()}
    assert {str(path): count for path, count in counts.items() if count > MAX_LINES} == {}


def test_the_wheel_has_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {dotted(path.parent / "__init__.py") for path in PRODUCT}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(folders)
    packages = {dotted(path) for path in PRODUCT if path.name == "__init__.py"}
    assert folders - packages == set()


def test_no_function_is_long() -> None:
    long = {
        name: length
        for name, node in functions()
        if (length := (node.end_lineno or 0) - statements(node)[0].lineno + 1) > MAX_BODY
    }
    assert long == {}


def test_no_function_takes_many_parameters() -> None:
    many = {name: count for name, node in functions() if (count := parameters(node)) > MAX_PARAMETERS}
    assert {name: count for name, count in many.items() if name not in MANY_PARAMETERS} == {}
    assert MANY_PARAMETERS - set(many) == set()


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    """Every function of the product and the scripts, inner ones too, by ``module.name``."""
    for path in modules(*IMPORTED_AS, "scripts"):
        for node in ast.walk(tree(path)):
            if isinstance(node, Function):
                yield f"{dotted(path)}.{node.name}", node


def statements(node: Function) -> list[ast.stmt]:
    """What stands below the docstring."""
    return node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body


def parameters(node: Function) -> int:
    """How many are counted: none of a click command, whose options they are; no keyword-only ones of what is public."""
    if any(ast.unparse(line).startswith("click.command(") for line in node.decorator_list):
        return 0
    positional = [entry for entry in (*node.args.posonlyargs, *node.args.args) if entry.arg not in ("self", "cls")]
    private = node.name.startswith("_") and node.name != "__init__"
    return len(positional) + (len(node.args.kwonlyargs) if private else 0)


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
    bare = re.compile(r"^\s*except( Exception( as \w+)?)?:", re.MULTILINE)
    assert [str(path) for path in modules() if bare.search((ROOT / path).read_text())] == []
