"""How far a command goes through this house: ``python -m scripts.hops`` prints a table in Markdown.

Each command runs in a process of its own, on the demo's checkpoints, in a registry with a remote folder. Counted are
the functions of maskreg that run, the modules that are imported, and how many frames of maskreg stand on the stack
where the command first reads a tag, creates a tag's entry, and opens the index.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
OWN = tuple(f"{ROOT / name}{os.sep}" for name in ("maskreg", "cli"))

PREPARED = (
    "extract source target --name lab/a",
    "extract source target-seed1 --name lab/b",
    "remote add team team",
    "push lab/a",
)
MEASURED = (
    "list",
    "show lab/a",
    "pull lab/a",
    "extract source target --name lab/c",
    "merge lab/a lab/b --method ties --set density=0.2 --source source --name lab/m",
)
PLACES = {
    "a tag is read": ("open", "/refs/"),
    "a tag is written": ("os.link", "/refs/"),
    "the index": ("sqlite3.connect", ""),
}
"""What is looked for, as an event that Python audits, and a part of its arguments."""


def watch(arguments: list[str]) -> dict[str, Any]:
    """Run a command in this process; returns what was counted."""
    codes: dict[tuple[str, int, str], CodeType] = {}  # two code objects of different files can be equal
    depths: dict[str, int] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            codes[code.co_filename, code.co_firstlineno, code.co_name] = code

    def audit(event: str, values: tuple[Any, ...]) -> None:
        for place, (name, part) in PLACES.items():
            if event == name and place not in depths and part in " ".join(map(str, values)):
                depths[place] = own_frames()

    from maskreg_cli.start import main

    sys.addaudithook(audit)
    threading.setprofile(profile)
    sys.setprofile(profile)
    sys.argv[1:] = arguments
    try:
        exit_code = main()
    finally:
        sys.setprofile(None)
    own = [code for code in codes.values() if code.co_filename.startswith(OWN)]
    functions = [code for code in own if code.co_flags & inspect.CO_OPTIMIZED]  # no modules, no bodies of classes
    modules = {code.co_filename for code in own}
    return {"code": exit_code, "functions": len(functions), "modules": len(modules), "depths": depths}


def own_frames() -> int:
    """Frames of maskreg on this thread's stack."""
    frame, count = sys._getframe(1), 0
    while frame.f_back:
        frame = frame.f_back
        count += frame.f_code.co_filename.startswith(OWN)
    return count


def main() -> int:
    """Prepare a registry, measure every command, and print the table."""
    if sys.argv[1:2] == ["--in"]:
        Path(sys.argv[2]).write_text(json.dumps(watch(sys.argv[3:])))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pair in ("source", "target", "target-seed1"):
            (folder / pair).symlink_to(ROOT / "demo" / pair)
        (folder / "team").mkdir()
        own = {"MASKREG_HOME": f"{folder}/home", "MASKREG_CONFIG": f"{folder}/config.toml", "PYTHONPATH": str(ROOT)}
        print(f"| command | functions | modules | {' | '.join(PLACES)} |\n|---|--:|--:|{'--:|' * len(PLACES)}")
        for line in (*PREPARED, *MEASURED):
            command: list[str | Path] = [
                sys.executable,
                "-m",
                "scripts.hops",
                "--in",
                folder / "counts.json",
                *line.split(),
            ]
            done = subprocess.run(command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True)
            counts: Any = json.loads((folder / "counts.json").read_text()) if not done.returncode else {"code": 1}
            if counts["code"]:
                print(f"maskreg {line}: {done.stderr}", file=sys.stderr)
                return 1
            if line in MEASURED:
                depths = " | ".join(str(counts["depths"].get(place, "")) for place in PLACES)
                print(f"| `{line.split()[0]}` | {counts['functions']} | {counts['modules']} | {depths} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
