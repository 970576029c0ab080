"""Kernels that watch themselves: built with AddressSanitizer and UndefinedBehaviorSanitizer.

A read or write outside an array, a signed overflow or a shift too far ends the process that uses them::

    environment = sanitized(folder)
    subprocess.run([sys.executable, "-m", "tests.codec.fuzz"], env={**os.environ, **environment})
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_CHECKS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

_CUSTOMIZE = """
import maskreg.native

maskreg.native.__path__.insert(0, {folder!r})
"""


def sanitized(folder: Path) -> dict[str, str]:
    """Build the kernels of all levels in a folder; returns the environment of processes that are to use them."""
    build: list[str | Path] = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-lib",
        folder,
        "--build-temp",
        folder / "temp",
    ]
    flags = {"CFLAGS": _CHECKS, "LDFLAGS": "-fsanitize=address,undefined"}
    subprocess.run(build, cwd=ROOT, env=os.environ | flags, check=True, capture_output=True)
    # The interpreter was not built that way, so the library has to be there before everything else.
    located = ["gcc", "-print-file-name=libasan.so"]
    asan = subprocess.run(located, check=True, capture_output=True, text=True).stdout.strip()
    # Every interpreter imports a module of this name when it starts.
    start = folder / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text(_CUSTOMIZE.format(folder=str(folder / "maskreg" / "native")))
    return {"LD_PRELOAD": asan, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(start)}
