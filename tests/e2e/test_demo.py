"""The README's first command with fewer steps: a real distillation, whose update travels from one user to another."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]


def test_the_colleague_holds_the_same_bytes(demo: tuple[Path, str]) -> None:
    folder, output = demo
    names = sorted(p.name for p in (folder / "target").iterdir())
    assert f"{len(names)} of {len(names)} files of ben's checkpoint equal ada's byte for byte" in output
    for name in names:
        assert (folder / "ben" / "sums-opd" / name).read_bytes() == (folder / "target" / name).read_bytes()
    assert any((folder / "source" / n).read_bytes() != (folder / "target" / n).read_bytes() for n in names)


def test_it_reports_the_distillation(demo: tuple[Path, str]) -> None:
    _, output = demo
    assert "distilled 3 steps" in output
    assert "reverse KL to the teacher" in output
    assert "ben$ maskreg pull sums-opd | maskreg apply" in output


def test_it_does_not_empty_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    command: list[str | Path] = [sys.executable, "-m", "scripts.journey", "--dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == 2
    assert (tmp_path / "precious").read_text() == "x"
