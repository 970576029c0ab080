"""In an empty home no command starts another program, such as a compiler, or goes to the network, unasked."""

import json
import os
import subprocess
import sys
from pathlib import Path

from scripts.tour import SHIPPED

WITHOUT_HELP = """
import json, subprocess, sys
from maskreg_cli.main import main

PROGRAMS = "os.exec", "os.fork", "os.posix_spawn", "os.system", "subprocess.Popen"
NETWORK = "socket.connect", "socket.getaddrinfo"
def refuse(event, arguments):
    if event in PROGRAMS + NETWORK:
        raise PermissionError(f"{event}{arguments}")
sys.addaudithook(refuse)
try:
    subprocess.run([sys.executable, "-V"])
except PermissionError:
    for line in json.loads(sys.argv[1]):
        print(main(line), line[0], file=sys.stderr)
"""
"""Runs commands one after another, and refuses whatever leaves the process."""


def run(lines: list[list[str]], folder: Path) -> list[str]:
    """Exit code and name of each command, and what they said to people."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MASKREG_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HELP, json.dumps(lines)],
        env={**kept, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_nothing_is_compiled_or_fetched(tmp_path: Path) -> None:
    source, target, second = (str(SHIPPED / name) for name in ("source", "target", "target-seed1"))
    (tmp_path / "team").mkdir()
    lines = [
        ["list"],
        ["doctor"],
        ["extract", source, target, "--name", "a"],
        ["extract", source, second, "--name", "b"],
        ["show", "a"],
        ["compare", "a", "b"],
        ["baseline", "a", "--kind", "rounding-null"],
        ["remote", "add", "team", "team"],
        ["push", "a"],
        ["pull", "a"],
        ["apply", "a", "-o", "out"],
        ["verify", "--all"],
    ]
    said = run(lines, tmp_path)
    assert [line for line in said if line[:2].strip().isdigit()] == [f"0 {line[0]}" for line in lines]
