"""Kernels that watch themselves: built with AddressSanitizer and UndefinedBehaviorSanitizer.

A read or write outside an array, a signed overflow or a shift too far ends the process that uses them::

    environment = sanitized(cache)
    subprocess.run([sys.executable, "-m", "tests.codec.fuzz"], env={**os.environ, **environment})
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from maskreg.native import LEVELS, available
from tests.kernels import VARIABLE

ROOT = Path(__file__).parents[2]

_CHECKS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

_COMPILER = """#!/bin/sh
case "$*" in {others}) exit 1 ;; esac
exec {program} "$@" -O0
"""

_CUSTOMIZE = """
import maskreg.native

maskreg.native.__path__.insert(0, {folder!r})
"""


def compiler(path: Path, level: str, program: str = "cc") -> Path:
    """Write a compiler that takes a tenth of the time: it does not optimize, and compiles one level alone."""
    others = "|".join(f"*_{other}*" for other in LEVELS if other != level)
    path.write_text(_COMPILER.format(others=others, program=program))
    path.chmod(0o755)
    return path


def sanitized(cache: Path) -> dict[str, str]:
    """The environment of processes that are to use these kernels, of the level that is named or of the highest here.

    They are compiled when their sources have changed, which takes 15 seconds of a core, and kept in ``cache``.
    """
    level = os.environ.get(VARIABLE) or available()[-1]
    sources = [ROOT / "setup.py", *sorted((ROOT / "maskreg/native/src").iterdir())]
    digest = hashlib.sha256(
        (_CHECKS + _COMPILER + level).encode() + b"".join(path.read_bytes() for path in sources)
    ).hexdigest()
    folder = cache / digest[:16]
    cache.mkdir(exist_ok=True)
    # Other processes that run tests wait for the first one.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for earlier in (path for path in cache.iterdir() if path.is_dir()):
                shutil.rmtree(earlier)
            _build(cache / "unfinished", level)
            (cache / "unfinished").rename(folder)
    start = folder / "start"
    # The interpreter was not built that way, so the library has to be there before everything else.
    located = ["gcc", "-print-file-name=libasan.so"]
    asan = subprocess.run(located, check=True, capture_output=True, text=True).stdout.strip()
    # Every interpreter imports a module of this name when it starts.
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text(_CUSTOMIZE.format(folder=str(folder / "maskreg" / "native")))
    return {"LD_PRELOAD": asan, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(start), VARIABLE: level}


def _build(folder: Path, level: str) -> None:
    folder.mkdir(exist_ok=True)
    environment = {
        "CC": str(compiler(folder / "cc", level, "gcc")),
        "CFLAGS": _CHECKS,
        "LDFLAGS": "-fsanitize=address,undefined",
    }
    build = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder)]
    build += ["--build-temp", str(folder / "temp")]
    subprocess.run(build, cwd=ROOT, env=os.environ | environment, check=True, capture_output=True)
    shutil.rmtree(folder / "temp")
