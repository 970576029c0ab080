"""A short run of the demo, shared by all tests that use it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a short demo, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / ".demo"
    command: list[str | Path] = [sys.executable, "-m", "scripts.journey", "--dir", folder, "--training-steps", "4"]
    done = subprocess.run([*command, "--steps", "3"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr
