"""Compiled code that is kept on disk is that of the sources as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_INNER = "from maskreg.jit import kernel\n\n\n@kernel\ndef inner(x):\n    return x + {}\n"
_OUTER = """
from inner import inner
from maskreg.jit import is_compiled, kernel


@kernel
def outer(x):
    return 10 * inner(x)


print(is_compiled(outer), outer(0), sum(outer.stats.cache_hits.values()))
"""


def _run(folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "outer.py"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_kernels_are_kept_until_one_that_they_call_changes(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(_OUTER)
    (tmp_path / "inner.py").write_text(_INNER.format(1))
    assert _run(tmp_path) == ["False", "10", "0"]
    assert _run(tmp_path) == ["True", "10", "1"]
    (tmp_path / "inner.py").write_text(_INNER.format(2))
    assert _run(tmp_path) == ["False", "20", "0"]


@pytest.mark.parametrize("damage", [b"", b"\x80\x05", b"no index at all"])
def test_a_damaged_cache_is_compiled_anew(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "outer.py").write_text(_OUTER)
    (tmp_path / "inner.py").write_text(_INNER.format(1))
    _run(tmp_path)
    for index in (tmp_path / "__pycache__").glob("*.nbi"):
        index.write_bytes(damage)
    assert _run(tmp_path) == ["False", "10", "0"]
    assert _run(tmp_path) == ["True", "10", "1"]


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(_OUTER)
    (tmp_path / "inner.py").write_text(_INNER.format(1))
    _run(tmp_path)
    for index in (tmp_path / "__pycache__").glob("*.nbi"):
        # Not even root replaces a folder by a file.
        index.unlink()
        index.mkdir()
    assert _run(tmp_path) == ["False", "10", "0"]


def test_python_alone_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from maskreg.codec import get_codec; get_codec('step1')"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert "ConfigError: NUMBA_DISABLE_JIT is set" in done.stderr


@pytest.mark.parametrize("checked", [True, False])
def test_bounds_are_checked_where_a_test_asks_for_it(tmp_path: Path, checked: bool) -> None:
    """Otherwise the search for reads outside arrays would find none."""
    (tmp_path / "reading.py").write_text(
        "import numpy as np\n"
        "from maskreg.jit import kernel\n\n\n"
        "@kernel\ndef last(a, i):\n    return a[i]\n\n\n"
        "print(last(np.arange(24)[8:16], np.uint64(8)))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_BOUNDSCHECK": str(int(checked))}
    done = subprocess.run(
        [sys.executable, "reading.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if checked:
        assert "IndexError: index is out of bounds" in done.stderr
    else:
        assert done.stdout == "16\n"
