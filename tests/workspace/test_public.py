from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import maskreg

HEAVY = ["torch", "numpy", "zarr", "boto3", "sqlalchemy", "msgspec", "importlib.metadata"]


def test_importing_the_package_is_light() -> None:
    code = f"import sys, maskreg; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", maskreg.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(maskreg, name)
    assert name in {"__version__", "Mask"} or inspect.getdoc(value)
    assert name in dir(maskreg)
    assert isinstance(value, ModuleType) == (name in maskreg._MODULES)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        maskreg.nothing  # noqa: B018


def imported_for_type_checkers() -> dict[str, str]:
    """The imports under ``if TYPE_CHECKING`` of the package, as its table would say them."""
    module = ast.parse(Path(maskreg.__file__).read_text())
    (block,) = [node for node in module.body if isinstance(node, ast.If)]
    homes = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            homes[alias.asname or alias.name] = f"{node.module}:{alias.name}" if alias.asname else f"{node.module}"
    return homes


def test_type_checkers_see_what_the_table_says() -> None:
    homes = imported_for_type_checkers()
    del homes["Iterable"]
    assert homes == maskreg._HOMES
    assert [*sorted([*homes, "__version__"])] == maskreg.__all__


def test_no_public_name_is_hidden_by_a_room() -> None:
    """Importing ``maskreg.NAME`` would put that module in place of the name."""
    rooms = {path.stem for path in Path(maskreg.__file__).parent.iterdir()}
    assert rooms & set(maskreg.__all__) == maskreg._MODULES & rooms


def test_list_is_search() -> None:
    assert maskreg.list is maskreg.search
