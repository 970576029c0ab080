"""The demo's models, and a run of the demo that is shared by all tests that use it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

DEMO = ROOT / "demo"
"""Checkpoints ``source`` and ``teacher``, and two distillations, ``target`` and ``target-seed1``."""

BINARIES = Path(sys.executable).parent
"""Where the tests' own maskreg is, so that the demo installs nothing."""


def run_demo(
    folder: Path, *options: str | Path, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run the demo in ``folder`` to its end; its output is on stdout."""
    command: list[str | Path] = [sys.executable, "-B", "-m", "scripts.tour", "--dir", folder, *options]
    return subprocess.run(
        command, cwd=ROOT, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, programs: Path | None) -> tuple[Path, str]:
    """The folder of a demo, and what it printed; its home was empty."""
    root = tmp_path_factory.mktemp("demo")
    (root / "home").mkdir()
    done = run_demo(root / ".demo", "--maskreg", programs or BINARIES, env={**os.environ, "HOME": str(root / "home")})
    assert done.returncode == 0, done.stdout
    return root / ".demo", done.stdout
