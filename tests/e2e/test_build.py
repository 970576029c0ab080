"""What `python -m build` makes: a wheel of the product's files and kernels alone, and metadata that PyPI takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from maskreg import __version__
from tests.native.sanitizing import compiler
from tests.repository import IMPORTED_AS, ROOT, tracked

LEVEL = "baseline"
"""Of the kernels that the wheel of these tests has."""


def python(*args: str | Path, **variables: str) -> None:
    done = subprocess.run([sys.executable, *args], env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of a copy of the tracked files, and the wheel built from that sdist."""
    cc = compiler(tmp_path_factory.mktemp("compiler") / "cc", LEVEL)
    tree = tmp_path_factory.mktemp("tree")
    for path in tracked():
        (tree / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tree / path)
    out = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", out, tree, CC=str(cc), LDSHARED=f"{cc} -shared")
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    (path,) = dist.glob(f"maskreg-{__version__}-cp311-abi3-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_product_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    product = {Path(IMPORTED_AS[p.parts[0]], *p.parts[1:]).as_posix() for p in tracked() if p.parts[0] in IMPORTED_AS}
    product = {name for name in product if not name.startswith("maskreg/native/src/")}
    kernels = {f"maskreg/native/_{LEVEL}.abi3.so"}
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert product | kernels <= files
    assert files - product == kernels
    assert {"maskreg/py.typed", "maskreg/artifact/FORMAT.md", "maskreg/reports/page.html.j2"} <= files


def test_the_wheel_names_its_command_and_its_origin(wheel: zipfile.ZipFile) -> None:
    folder = f"maskreg-{__version__}.dist-info"
    metadata = message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert metadata["Version"] == __version__
    assert metadata["Author"] == "the maskreg authors"
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert "Repository, https://github.com/maskreg/maskreg" in metadata.get_all("Project-URL", [])
    assert b"maskreg = maskreg_cli.start:main" in wheel.read(f"{folder}/entry_points.txt")
    licenses = {f"{folder}/licenses/{name}" for name in ("LICENSE", "maskreg/service/pages/uPlot.LICENSE")}
    assert licenses <= {*wheel.namelist()}


def test_the_sdist_builds_the_wheel_and_tells_its_history(dist: Path) -> None:
    top = f"maskreg-{__version__}"
    with tarfile.open(dist / f"{top}.tar.gz") as archive:
        names = {member.name.removeprefix(f"{top}/") for member in archive.getmembers() if member.isfile()}
    assert {path.as_posix() for path in tracked() if path.parts[0] in IMPORTED_AS} <= names
    assert {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith(("tests/", "scripts/", "."))]


def test_without_a_compiler_nothing_is_built(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    command = [sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=tree, env={**os.environ, "CC": "false"}, capture_output=True, text=True)
    assert done.returncode != 0 and "need a C compiler" in done.stdout + done.stderr
    assert not [*tmp_path.glob("*.whl")]


def test_pypi_would_take_both(dist: Path) -> None:
    python("-m", "twine", "check", "--strict", *dist.iterdir())
