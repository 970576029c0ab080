"""What needs torch is left out, and named, where it is not installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import NEED_TORCH
from tests.repository import ROOT, dotted, imports, modules, tree

TORCH = {"accelerate", "peft", "torch", "transformers", "triton", "trl"}
"""Packages that are not installed where torch is not."""

COLLECTION = """
import sys
import pytest
sys.modules["torch"] = None
sys.exit(pytest.main(["--collect-only", "tests/mask", "tests/tensors"]))
"""


def test_what_is_left_out_without_torch_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTION], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = re.findall(r"^torch is not installed: (.*) and tests marked with torch are not run$", done.stdout, re.M)
    assert line.split(", ") == [f"tests/{name}" for name in NEED_TORCH]
    assert re.search(r"/ [1-9]\d* deselected", done.stdout)
    assert "test_torch_gives_the_same_mask" not in done.stdout


def test_files_that_import_torch_are_listed() -> None:
    needing = [path for path in need_torch() if path.name.startswith("test_")]
    left_out = [Path("tests", name) for name in NEED_TORCH]
    assert [str(path) for path in needing if not any(path.is_relative_to(name) for name in left_out)] == []
    assert [str(name) for name in left_out if not any(path.is_relative_to(name) for path in needing)] == []


def need_torch() -> list[Path]:
    """Files of the repository that import torch when they are imported, themselves or through others."""
    loaded = {dotted(path): loads(path) for path in modules()}
    needing, before = set(TORCH), set[str]()
    while needing != before:
        before = needing
        needing = before | {name for name, others in loaded.items() if others & before}
    return [path for path in modules() if dotted(path) in needing]


def loads(path: Path) -> set[str]:
    """What is imported with a file, and the packages of that: not what functions import, nor what types need."""
    later = set[int]()
    for node in ast.walk(tree(path)):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            later.update(line.lineno for line in ast.walk(node) if isinstance(line, ast.Import | ast.ImportFrom))
    names = {name for name, line in imports(path) if line not in later}
    return {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}
