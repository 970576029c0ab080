from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import maskreg

HEAVY = ["torch", "numpy", "zarr", "boto3", "sqlalchemy", "msgspec", "importlib.metadata"]


def test_importing_the_package_is_light() -> None:
    code = f"import sys, maskreg; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", maskreg.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in {"__version__", "Mask"} or inspect.getdoc(getattr(maskreg, name))
    assert name in dir(maskreg)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        maskreg.nothing  # noqa: B018


def test_type_checkers_see_the_public_names() -> None:
    module = ast.parse(Path(maskreg.__file__).read_text())
    (block,) = [node for node in module.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    assert names - {"Iterable"} | {"__version__"} == set(maskreg.__all__)


def test_no_public_name_is_hidden_by_a_room() -> None:
    """Importing ``maskreg.NAME`` would put that module in place of the name."""
    rooms = {path.stem for path in Path(maskreg.__file__).parent.iterdir()}
    assert rooms & set(maskreg.__all__) == {"errors"}


def test_list_is_search() -> None:
    assert maskreg.list is maskreg.search
