"""Makes the demo's own environment: maskreg and what it needs, in a folder that can be deleted.

The package is built from a copy, because building leaves files beside the sources. pip's cache, too, stays inside
the folder, unless the user chose one. A stamp tells whether the sources are still those that were installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

from scripts.journey.watch import Watch

ROOT = Path(__file__).parents[2]

SOURCES = ("cli", "maskreg", "migrations", "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
"""What a build of the package reads."""

TORCH = "torch==2.13.0"
"""Pinned, so that pip takes a build for CPUs of this version if the index has one."""


class InstallError(Exception):
    """pip or venv failed; the message says what to do."""


class Installation:
    """The environment in ``folder/venv``.

    Attributes:
        venv: the environment.
        log: everything that was printed while it was made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv = folder / "venv"
        self.log = folder / "install.log"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.venv / "bin" / "python"

    def ensure(self, *, extra: str) -> None:
        """Install maskreg with an extra, if these sources are not installed yet.

        Raises:
            InstallError: it did not work out.
        """
        stamp = self.venv / f"{extra}.stamp"
        state = _state()
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
            return
        start = time.monotonic()
        self.log.write_bytes(b"")
        print(f"Installing maskreg into {self.venv}; later demos start at once.", flush=True)
        self._copy_sources()
        self._ensure_venv()
        if extra == "train" and self._try("downloading torch", self._pip(TORCH)):
            print(f"  no {TORCH} for this Python; taking the latest", flush=True)
        self._run("installing maskreg", self._pip(f"{self.folder / 'src'}[{extra}]"))
        self._say_kernels()
        stamp.write_text(state, encoding="utf-8")
        print(f"  installed in {time.monotonic() - start:.0f} s\n", flush=True)

    def _ensure_venv(self) -> None:
        """Make the environment, unless it was made to its end, for this folder and this interpreter."""
        mark = self.venv / "made-for"
        purpose = f"{self.venv} {sys.version}"
        if not mark.is_file() or mark.read_text(encoding="utf-8") != purpose:
            self._run("making an environment", [sys.executable, "-m", "venv", "--clear", str(self.venv)])
            mark.write_text(purpose, encoding="utf-8")

    def _copy_sources(self) -> None:
        shutil.rmtree(self.folder / "src", ignore_errors=True)
        for name in SOURCES:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "_baseline.c", "_avx2.c", "_avx512.c")
                shutil.copytree(ROOT / name, self.folder / "src" / name, ignore=ignored)
            else:
                (self.folder / "src").mkdir(exist_ok=True)
                shutil.copyfile(ROOT / name, self.folder / "src" / name)

    def _pip(self, requirement: str) -> list[str]:
        options = ["--disable-pip-version-check", "--no-input", "--progress-bar=off"]
        return [str(self.python), "-m", "pip", "install", *options, requirement]

    def _run(self, label: str, argv: list[str]) -> None:
        code = self._try(label, argv)
        if code:
            tail = "".join(f"  {line}\n" for line in self.log.read_text(errors="replace").splitlines()[-12:])
            raise InstallError(
                f"{label} failed with exit {code}; the end of {self.log}:\n{tail}"
                "pip takes packages from PyPI, or from the index that PIP_INDEX_URL names.\n"
                "  next: check that it can be reached, then run the same command again"
            )

    def _try(self, label: str, argv: list[str]) -> int:
        env = {"PIP_CACHE_DIR": str(self.folder / "cache" / "pip"), **os.environ}
        status = PipStatus(Watch(label), self.log)
        return status.watch.run(argv, env, self.folder, status.show)

    def _say_kernels(self) -> None:
        check = "from maskreg.native import library; raise SystemExit(library() is None)"
        if Watch("checking the kernels").run([self.python, "-c", check], os.environ, self.folder):
            print("  there is no C compiler, so NumPy does the work: the same bytes, more slowly", flush=True)


class PipStatus:
    """Turns what pip prints into one label that changes, or into lines of a log.

    Attributes:
        watch: whose label changes.
        log: the file that receives everything.
    """

    def __init__(self, watch: Watch, log: Path) -> None:
        self.watch = watch
        self.log = log
        self._rest = b""
        self._first = watch.label

    def show(self, data: bytes) -> None:
        """Receive a piece of pip's output."""
        with self.log.open("ab") as file:
            file.write(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if phase := _phase(text):
                self.watch.label = f"{self._first}: {phase}"
                self.watch.announce()


PHASES = (
    ("Installing build dependencies: started", "getting what its build needs"),
    ("Preparing metadata (pyproject.toml): started", "reading its requirements"),
    ("Building wheel for maskreg (pyproject.toml): started", "compiling its C kernels"),
    ("Installing collected packages", "unpacking the packages"),
)
"""Lines of pip that begin something longer, and what they mean."""


def _phase(line: str) -> str | None:
    """What pip does from this line on, if it is worth a word."""
    if line.startswith("Downloading "):
        name, _, size = line.removeprefix("Downloading ").partition(" ")
        return f"downloading {name.split('-')[0].rsplit('/', 1)[-1]} {size}".strip()
    return next((phase for start, phase in PHASES if line.startswith(start)), None)


def _state() -> str:
    """A digest of the sources, of the folder and of the interpreter: what an installation depends on."""
    digest = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in (".pyc", ".so"):
                digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
