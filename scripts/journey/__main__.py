"""Shows in a minute what maskreg does: the update of a small model travels from one person to another.

It installs maskreg into .demo/venv, works on two checkpoints from this repository, and prints each command as you would
type it. Everything that it writes is in .demo; delete that folder when you are done.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import webbrowser
from pathlib import Path

from scripts.journey import pair
from scripts.journey.install import Installation, InstallError
from scripts.journey.tour import StepError, walk
from scripts.journey.watch import Watch

ROOT = Path(__file__).parents[2]
MARK = "made-by-scripts-demo"


def main() -> int:
    """Run the demo.

    Returns:
        The exit code: 1 if the result differs from the target, 2 if the folder is not a demo's, 65 if the pair is
        damaged, 69 if something could not be installed, otherwise that of the line that failed.
    """
    options = _parser().parse_args()
    folder: Path = options.dir.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        print(f"{folder} holds files that no demo wrote; choose another folder with --dir", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    try:
        if options.train:
            return _train(folder, options)
        return _show(folder, _binaries(folder, options, extra="report"), options)
    except pair.DamagedPairError as error:
        return _fail(f"{error}\n  next: git checkout -- {pair.SHIPPED.name}, or name another pair with --pair", 65)
    except InstallError as error:
        return _fail(str(error), 69)
    except StepError as error:
        return _fail(f"{error}\n  its output is above; everything that the demo wrote is in {folder}", error.code)
    except KeyboardInterrupt:
        return _fail("interrupted; the next demo continues from here", 130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--open", action="store_true", help="open the report in the browser at the end")
    parser.add_argument("--dir", type=Path, default=ROOT / ".demo", help="work folder [.demo]")
    parser.add_argument("--pair", type=Path, default=pair.SHIPPED, help="checkpoints that --train wrote [demo]")
    parser.add_argument("--train", type=Path, metavar="DIR", help="train new checkpoints into DIR (minutes), and exit")
    parser.add_argument("--steps", type=int, help="with --train: distillation steps")
    parser.add_argument("--training-steps", type=int, help="with --train: training steps of source and teacher")
    parser.add_argument("--maskreg", type=Path, metavar="BIN", help="folder of the maskreg to run; install nothing")
    return parser


def _binaries(folder: Path, options: argparse.Namespace, extra: str) -> Path:
    """The folder of ``maskreg`` and ``python``: the one that was named, or that of the demo's own environment."""
    if options.maskreg:
        return Path(options.maskreg).absolute()
    installation = Installation(folder)
    installation.ensure(extra=extra)
    return installation.python.parent


def _train(folder: Path, options: argparse.Namespace) -> int:
    """Train in the environment that has torch."""
    binaries = _binaries(folder, options, extra="train")
    argv = [str(binaries / "python"), "-B", "-m", "scripts.journey.train", str(options.train.absolute())]
    for name in ("steps", "training_steps"):
        if (value := getattr(options, name)) is not None:
            argv += [f"--{name.replace('_', '-')}", str(value)]
    return Watch("loading torch").run(argv, os.environ, ROOT)


def _show(folder: Path, binaries: Path, options: argparse.Namespace) -> int:
    start, cpu = time.monotonic(), _cpu()
    pair.copy(options.pair, folder)
    print(
        "A small model learned sums: source. A teacher taught it more: target. Ada ran that; Ben wants the result.\n"
        f"Everything happens in {folder}; to type along:\n"
        f"     cd {folder} && export PATH={binaries}:$PATH",
        flush=True,
    )
    walk(folder, binaries, folder / "cache")
    if not _is_identical(folder):
        return _fail("patched and target differ", 1)
    _print_end(folder, binaries, time.monotonic() - start, _cpu() - cpu)
    if options.open and not webbrowser.open((folder / "report.html").as_uri()):
        print("there is no browser to open it with", file=sys.stderr)
    return 0


def _is_identical(folder: Path) -> bool:
    """Whether Ben's files are Ada's, by the digests that the pair came with."""
    target = {name: digest for name, digest in pair.digests(folder).items() if name.startswith("target/")}
    files = sorted((folder / "patched").iterdir())
    return target == {f"target/{path.name}": pair.digest(path) for path in files}


def _print_end(folder: Path, binaries: Path, seconds: float, cpu: float) -> None:
    whole = sum(path.stat().st_size for path in (folder / "target").glob("*.safetensors"))
    traveled = sum(path.stat().st_size for path in (folder / "team" / "artifacts").rglob("*") if path.is_file())
    print(
        f"\nDone in {seconds:.0f} s ({cpu:.0f} s of CPU).\n"
        "  result    identical, bit for bit: Ben's patched is Ada's target\n"
        f"  traveled  {traveled / 1024:,.0f} KiB, mask and delta, for {whole / 1024:,.0f} KiB of weights\n"
        f"  report    {(folder / 'report.html').as_uri()}\n"
        f"  next      on a run of your own: {binaries / 'maskreg'} extract SOURCE TARGET --name NAME",
        flush=True,
    )


def _cpu() -> float:
    """Processor seconds of this process and of all that it waited for."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def _fail(message: str, code: int) -> int:
    print(f"\nThe demo stopped: {message}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
