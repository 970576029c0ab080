from __future__ import annotations

import subprocess
import sys

import pytest

import maskreg

HEAVY = ["torch", "numpy", "zarr", "numba", "boto3", "sqlalchemy", "pydantic", "importlib.metadata"]


def test_importing_the_package_is_light() -> None:
    code = f"import sys, maskreg; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", maskreg.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(maskreg, name)
    assert name == "__version__" or value.__doc__
    assert name in dir(maskreg)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        maskreg.nothing  # noqa: B018
