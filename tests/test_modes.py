"""The modes of scripts/test, and that what needs torch is left out, and named, where it is not installed."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of scripts/test, beside programs that only print how they are run."""
    for name in ("scripts/check", "scripts/setup", ".venv/bin/python", ".venv-without-torch/bin/python"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text('#!/bin/sh\necho "$0 $* kernels: $MASKREG_KERNELS"\n')
        program.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts")
    (tmp_path / "tests" / "store").mkdir(parents=True)
    return tmp_path


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "MASKREG_KERNELS"}
    return subprocess.run([folder / "scripts" / "test", *args], env=own, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("mode", "setup", "interpreter", "build"),
    [
        ([], "scripts/setup ", ".venv", ""),
        (["--kernels", "numpy"], "scripts/setup ", ".venv", "numpy"),
        (["--kernels", "avx2"], "scripts/setup ", ".venv", "avx2"),
        (["--without", "torch"], "scripts/setup --without torch", ".venv-without-torch", ""),
    ],
    ids=["some", "numpy", "avx2", "without torch"],
)
def test_a_mode_sets_up_what_it_needs(mode: list[str], setup: str, interpreter: str, build: str, folder: Path) -> None:
    done = run(folder, *mode, "tests/store", "-x")
    before, tests = done.stdout.splitlines()
    assert before == f"{setup} kernels: {build}"
    assert tests.startswith(f"{interpreter}/bin/python -m pytest ")
    assert tests.endswith(f" tests/store -x kernels: {build}")


@pytest.mark.parametrize(
    ("tier", "said"), [("--fast", "--fast -x"), ("--changed", "-x .venv/bin/python -m scripts.changed")]
)
def test_a_tier_sets_up_and_runs_some_tests(tier: str, said: str, folder: Path) -> None:
    before, tests = run(folder, tier, "-x").stdout.splitlines()
    assert before == "scripts/setup  kernels: "
    assert f" {said} kernels: " in tests


def test_the_workflow_runs_every_mode(folder: Path) -> None:
    modes = re.findall(r"^  (--\w+)", run(folder, "--help").stdout.partition("A mode")[2], re.MULTILINE)
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["modes"]
    assert job["steps"][-1] == {"run": "scripts/test ${{ matrix.mode }}"}
    assert [line.split()[0] for line in job["strategy"]["matrix"]["mode"]] == modes
    for line in job["strategy"]["matrix"]["mode"]:
        assert run(folder, *line.split()).returncode == 0


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
