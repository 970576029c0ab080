"""The demo: distil a small model, extract the update, push it, and let a colleague rebuild the result bit for bit."""

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
    """Somebody with a registry and settings of their own."""

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
        """Show a shell line, run it, and give the seconds it took."""
        print(f"\n{self.name}$ {line}", flush=True)
        began = time.monotonic()
        subprocess.run(["sh", "-c", line], env=self._env, cwd=self.folder, check=True)
        return time.monotonic() - began


def main() -> int:
    """Run the demo; 1 when the result differs from the target."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=TrainingPlan.steps, help="steps of distillation")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop distilling after this long")
    parser.add_argument("--training-steps", type=int, help="steps for source and teacher, to make a quicker demo")
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="work folder, emptied first")
    options = parser.parse_args()
    plan = replace(TrainingPlan(), steps=options.steps, seconds=options.seconds)
    if options.training_steps is not None:
        plan = replace(plan, source_steps=options.training_steps, teacher_steps=options.training_steps)
    folder: Path = options.dir.absolute()
    if not _make_empty(folder):
        print(f"{folder} holds something that no demo made; choose another --dir", file=sys.stderr)
        return 2
    distilled = train(folder, plan)
    _tell_training(distilled)
    return _journey(folder)


def _make_empty(folder: Path) -> bool:
    if folder.exists() and any(folder.iterdir()) and not (folder / "demo").exists():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "demo").touch()
    return True


def _tell_training(did: Distilled) -> None:
    say(
        f"distilled {did.steps} steps in {did.seconds:.0f} s; on held-out sums:\n"
        f"  reverse KL to the teacher {did.kl_before:.4f} -> {did.kl_after:.4f} nats a token\n"
        f"  exact answers {did.accuracy_source:.3f} -> {did.accuracy_target:.3f} (teacher {did.accuracy_teacher:.3f})"
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
    surplus = sorted(p.name for p in result.iterdir() if p.name not in names)
    moved = sum(p.stat().st_size for p in (registry / "artifacts").rglob("*") if p.is_file())
    whole = sum(p.stat().st_size for p in target.glob("*.safetensors"))
    print(
        f"\n{len(same)} of {len(names)} files of ben's checkpoint equal ada's byte for byte\n"
        f"{moved:,} bytes traveled for {whole:,} bytes of weights ({moved / whole:.1%}); "
        f"pull | apply took {seconds:.1f} s"
    )
    if len(same) == len(names) and not surplus:
        return 0
    print(f"differing: {sorted(set(names) - set(same))}; surplus: {surplus}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
