"""The demo: distills a small model, extracts and pushes the update; a colleague pulls it and rebuilds its bytes."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from scripts.journey.train import Distilled, TrainingPlan, say, train

MASKREG = Path(sys.executable).with_name("maskreg")
DEFAULT_DIR = Path(__file__).parents[2] / ".demo"


class Person:
    """A user with a registry and settings of their own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self._env = {
            **os.environ,
            "PATH": f"{MASKREG.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "MASKREG_HOME": str(self.folder / "registry"),
            "MASKREG_CONFIG": str(self.folder / "config.toml"),
        }

    def run(self, line: str) -> float:
        """Print a shell line and run it; returns the seconds it took."""
        print(f"\n{self.name}$ {line}", flush=True)
        start = time.monotonic()
        subprocess.run(["sh", "-c", line], env=self._env, cwd=self.folder, check=True)
        return time.monotonic() - start


def main() -> int:
    """Run the demo.

    Returns:
        The exit code: 1 if the result differs from the target, 2 if the folder is not a demo's.
    """
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=TrainingPlan.steps, help="steps of distillation")
    parser.add_argument("--seconds", type=float, default=0.0, help="time limit of the distillation; 0 for none")
    parser.add_argument("--training-steps", type=int, help="steps for source and teacher, for a shorter demo")
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="work folder; its content is deleted first")
    options = parser.parse_args()
    plan = replace(TrainingPlan(), steps=options.steps, seconds=options.seconds)
    if options.training_steps is not None:
        plan = replace(plan, source_steps=options.training_steps, teacher_steps=options.training_steps)
    folder: Path = options.dir.absolute()
    if not _make_empty(folder):
        print(f"{folder} holds files that no demo wrote; choose another --dir", file=sys.stderr)
        return 2
    distilled = train(folder, plan)
    _report(distilled)
    return _journey(folder)


def _make_empty(folder: Path) -> bool:
    if folder.exists() and any(folder.iterdir()) and not (folder / "demo").exists():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "demo").touch()
    return True


def _report(result: Distilled) -> None:
    say(
        f"distilled {result.steps} steps in {result.seconds:.0f} s; on held-out sums:\n"
        f"  reverse KL to the teacher {result.kl_before:.4f} -> {result.kl_after:.4f} nats a token\n"
        f"  exact answers {result.accuracy_source:.3f} -> {result.accuracy_target:.3f} "
        f"(teacher {result.accuracy_teacher:.3f})"
    )


def _journey(folder: Path) -> int:
    ada, ben = Person("ada", folder), Person("ben", folder)
    team = shlex.quote((folder / "team").as_uri())
    ada.run("maskreg extract ../source ../target --name sums-opd --family qwen3-demo --method opd --license apache-2.0")
    ada.run(f"maskreg remote add team {team}")
    ada.run("maskreg push sums-opd")
    # Ben has the source checkpoint, and nothing of Ada's.
    shutil.copytree(folder / "source", ben.folder / "sums-model")
    ben.run(f"maskreg remote add team {team}")
    ben.run("maskreg list --remote team")
    seconds = ben.run("maskreg pull sums-opd | maskreg apply --source sums-model")
    return _compare(folder / "target", ben.folder / "sums-opd", ben.folder / "registry", seconds)


def _compare(target: Path, result: Path, registry: Path, seconds: float) -> int:
    names = sorted(p.name for p in target.iterdir())
    same = [n for n in names if (result / n).exists() and (result / n).read_bytes() == (target / n).read_bytes()]
    extra = sorted(p.name for p in result.iterdir() if p.name not in names)
    transferred = sum(p.stat().st_size for p in (registry / "artifacts").rglob("*") if p.is_file())
    whole = sum(p.stat().st_size for p in target.glob("*.safetensors"))
    print(
        f"\n{len(same)} of {len(names)} files of ben's checkpoint equal ada's byte for byte\n"
        f"{transferred:,} bytes traveled for {whole:,} bytes of weights ({transferred / whole:.1%}); "
        f"pull | apply took {seconds:.1f} s"
    )
    if len(same) == len(names) and not extra:
        return 0
    print(f"differing: {sorted(set(names) - set(same))}; extra: {extra}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
