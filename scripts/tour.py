"""Shows in a minute what maskreg does: the update of a small model travels from one person to another.

It installs maskreg into .demo/venv, works on two checkpoints from this repository, and prints each command as you would
type it. Everything that it writes is in .demo; delete that folder when you are done.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "demo"
MARK, SUMS = "made-by-scripts-demo", "SHA256SUMS"

PARTS = ("source", "teacher", "target", "target-seed1", "prompts.jsonl")
"""What a pair consists of: three checkpoints and a second target, and the prompts of the distillation."""

RESULTS = ("ada", "ada.toml", "ben", "ben.toml", "team", "patched", "report.html")
"""What a tour writes into its folder, and the next one deletes first."""

SOURCES = ("cli", "maskreg", "migrations", "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
"""What a build of the package reads."""


@dataclass(frozen=True)
class Step:
    """A step of the tour: who types its lines, its title, and why it matters."""

    person: str
    title: str
    why: str
    lines: tuple[str, ...]


TOUR = (
    Step(
        "ada",
        "extract: keep what a run changed",
        "Ada distilled source into target. maskreg compares their bits and keeps which moved and to what.",
        ("maskreg extract source target --name sums-opd --family qwen3-demo --method opd --quiet",),
    ),
    Step(
        "ada",
        "show: see what it is",
        "How much moved, and where. Both checkpoints are named by the digests of their weights, not by paths.",
        ("maskreg show sums-opd",),
    ),
    Step(
        "ada",
        "push: share it",
        "A team's remote is a bucket (s3://…) or, here, a folder. There is no server to run.",
        ("maskreg remote add team team", "maskreg push sums-opd"),
    ),
    Step(
        "ben",
        "pull | apply: get the checkpoint from the update",
        "Ben has the same source and a registry of his own. The update travels, not the checkpoint; every tensor is "
        "checked before the result is visible.",
        ("maskreg remote add team team", "maskreg pull sums-opd | maskreg apply --source source -o patched"),
    ),
    Step(
        "ben",
        "compare the files: is it the same checkpoint?",
        "Not close, the same: weights, configuration and tokenizer, byte for byte.",
        ("diff -r patched target && echo identical",),
    ),
    Step(
        "ben",
        "compare: does another run move the same weights?",
        "target-seed1 learned from other prompts and samples. Any two updates share weights, because rounding to bf16 "
        "hides small changes of large ones; so the overlap stands beside what chance and rounding alone would share.",
        (
            "maskreg extract source target-seed1 --name sums-opd-seed1 --family qwen3-demo --method opd --quiet",
            "maskreg compare sums-opd sums-opd-seed1",
        ),
    ),
    Step(
        "ben",
        "report: a page to forward",
        "Plots, figures and their definitions in one file that needs no network.",
        ("maskreg report sums-opd --against sums-opd-seed1 -o report.html",),
    ),
)


class DemoError(Exception):
    """The demo stops, with a message and an exit code."""


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--open", action="store_true", help="open the report in the browser at the end")
    parser.add_argument("--dir", type=Path, default=ROOT / ".demo", help="work folder [.demo]")
    parser.add_argument("--pair", type=Path, default=SHIPPED, help="checkpoints as in demo/, with their SHA256SUMS")
    parser.add_argument("--maskreg", type=Path, metavar="BIN", help="folder of the maskreg to run; install nothing")
    options = parser.parse_args()
    folder: Path = options.dir.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        print(f"{folder} holds files that no demo wrote; choose another folder with --dir", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    try:
        show(folder, options.maskreg.absolute() if options.maskreg else installed(folder), options.pair)
    except DemoError as error:
        message, code = error.args
        print(f"\nThe demo stopped: {message}", file=sys.stderr, flush=True)
        return int(code)
    except KeyboardInterrupt:
        print("\nThe demo stopped: interrupted; the next demo continues from here", file=sys.stderr)
        return 130
    if options.open and not webbrowser.open((folder / "report.html").as_uri()):
        print("there is no browser to open it with", file=sys.stderr)
    return 0


def show(folder: Path, binaries: Path, pair: Path) -> None:
    """Take all steps in ``folder`` on a copy of a pair, and compare the result with its target."""
    start = time.monotonic()
    copy(pair, folder)
    print(
        "A small model learned sums: source. A teacher taught it more: target. Ada ran that; Ben wants the result.\n"
        f"Everything happens in {folder}; to type along:\n"
        f"     cd {folder} && export PATH={binaries}:$PATH",
        flush=True,
    )
    walk(folder, binaries)
    target = {name: value for name, value in digests(folder).items() if name.startswith("target/")}
    if target != {f"target/{path.name}": digest(path) for path in sorted((folder / "patched").iterdir())}:
        raise DemoError("patched and target differ", 1)
    whole = sum(path.stat().st_size for path in (folder / "target").glob("*.safetensors"))
    traveled = sum(path.stat().st_size for path in (folder / "team" / "artifacts").rglob("*") if path.is_file())
    print(
        f"\nDone in {time.monotonic() - start:.0f} s.\n"
        "  result    identical, bit for bit: Ben's patched is Ada's target\n"
        f"  traveled  {traveled / 1024:,.0f} KiB, mask and delta, for {whole / 1024:,.0f} KiB of weights\n"
        f"  report    {(folder / 'report.html').as_uri()}\n"
        f"  next      on a run of your own: {binaries / 'maskreg'} extract SOURCE TARGET --name NAME",
        flush=True,
    )


def walk(folder: Path, binaries: Path) -> None:
    """Run every line in a shell in ``folder``, in place of what an earlier tour left."""
    for name in RESULTS:
        remove(folder / name)
    width, person = min(76, shutil.get_terminal_size().columns - 1), ""
    for number, step in enumerate(TOUR, start=1):
        print(f"\n{bold(f'{number}/{len(TOUR)}  {step.title}')}")
        print(textwrap.fill(step.why, width=width, initial_indent=" " * 5, subsequent_indent=" " * 5))
        if step.person != person:
            person = step.person
            print(bold(f"{person}$ export MASKREG_HOME=$PWD/{person} MASKREG_CONFIG=$PWD/{person}.toml"))
        environment = {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "MASKREG_HOME": str(folder / person),
            "MASKREG_CONFIG": str(folder / f"{person}.toml"),
            "MPLCONFIGDIR": str(folder / "cache" / "matplotlib"),  # else it is left in the home
        }
        for line in step.lines:
            print(bold(f"{person}$ {line}"), flush=True)
            done = subprocess.run(
                ["sh", "-c", line], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
            )
            if code := done.returncode:
                raise DemoError(
                    f"step {number} of {len(TOUR)} failed with exit {code}: {line}\n"
                    f"  its output is above; everything that the demo wrote is in {folder}",
                    code if code > 0 else 128 - code,
                )


def bold(text: str) -> str:
    """Bold on a terminal that shows it."""
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def copy(folder: Path, out: Path) -> None:
    """Copy a pair into ``out``, in place of an earlier one; refuse one that is not what its digests say."""
    expected = sealed(folder) if (folder / SUMS).is_file() else {SUMS: "missing"}
    actual = digests(folder)
    if wrong := sorted(name for name in expected | actual if expected.get(name) != actual.get(name)):
        again = f"git checkout -- {SHIPPED.name}, or name another pair with --pair"
        raise DemoError(f"{folder} is not as it was written: {', '.join(wrong)}\n  next: {again}", 65)
    for part in PARTS:
        remove(out / part)
        put(folder / part, out / part)


def sealed(folder: Path) -> dict[str, str]:
    """The digests that stand beside a pair, by file, as ``sha256sum --check`` reads them."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    return {name: value for value, name in (line.split("  ", 1) for line in lines)}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a pair, by its path in ``folder``, sorted."""
    found = [path for part in PARTS for path in (folder / part, *(folder / part).rglob("*"))]
    return {path.relative_to(folder).as_posix(): digest(path) for path in sorted(found) if path.is_file()}


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def put(path: Path, out: Path) -> None:
    """Copy a file, or a folder without what builds leave in it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "_baseline.c", "_avx2.c", "_avx512.c")
    shutil.copytree(path, out, ignore=ignored) if path.is_dir() else shutil.copyfile(path, out)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def installed(folder: Path) -> Path:
    """The folder of a ``maskreg`` of these sources in ``folder/venv``, installed unless it is there already."""
    venv, log = folder / "venv", folder / "install.log"
    python, stamp, state = venv / "bin" / "python", venv / "maskreg.stamp", _state()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
        return python.parent
    log.write_text("")
    print(f"Installing maskreg into {venv}; later demos start at once.", flush=True)
    # Built from a copy, because building leaves files beside the sources.
    remove(folder / "src")
    (folder / "src").mkdir()
    for name in SOURCES:
        put(ROOT / name, folder / "src" / name)
    # pip's cache stays inside the folder, unless the user chose one.
    environment = {"PIP_CACHE_DIR": str(folder / "cache" / "pip"), **os.environ}
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    for argv in ([sys.executable, "-m", "venv", "--clear", str(venv)], [*pip, f"{folder / 'src'}[report]"]):
        _logged(argv, environment, log)
    stamp.write_text(state, encoding="utf-8")
    return python.parent


def _logged(argv: Sequence[str], environment: dict[str, str], log: Path) -> None:
    """Run a program with its output in a log; print the lines that begin something longer."""
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if line.strip().startswith(("Downloading ", "Building wheel for maskreg", "Installing collected")):
                print(f"  {line.strip()[:76]}", flush=True)
    if process.returncode:
        tail = "".join(f"  {line}\n" for line in log.read_text(encoding="utf-8").splitlines()[-12:])
        raise DemoError(
            f"installing maskreg failed with exit {process.returncode}; the end of {log}:\n{tail}"
            "pip takes packages from PyPI, or from the index that PIP_INDEX_URL names.\n"
            "  next: check that it can be reached, then run the same command again",
            69,
        )


def _state() -> str:
    """A digest of the sources, of the folder and of the interpreter: what an installation depends on."""
    state = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    for name in SOURCES:
        for file in sorted([ROOT / name, *(ROOT / name).rglob("*")]):
            if file.is_file() and file.suffix not in (".pyc", ".so"):
                state.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return state.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
