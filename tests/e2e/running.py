"""Running the installed command, as several people on one machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import Tensor, make_checkpoint, moved

MASKREG = str(Path(sys.executable).with_name("maskreg"))


class Person:
    """A user with a home of their own: settings, local registry, seen checkpoints.

    Commands are those in ``programs``, if it is given.
    """

    def __init__(self, home: Path, extra: Mapping[str, str] | None = None, programs: Path | None = None) -> None:
        self.home = home
        self.programs = programs
        bins = [str(programs)] * (programs is not None) + [str(Path(MASKREG).parent), os.environ["PATH"]]
        home.mkdir(parents=True, exist_ok=True)
        self.registry = home / "maskreg"
        self.env = {
            **os.environ,
            **(extra or {}),
            "HOME": str(home),
            "MASKREG_HOME": str(self.registry),
            "MASKREG_CONFIG": str(home / "config.toml"),
            "PATH": ":".join(bins),
        }

    def start(self, *args: str | Path, **kwargs: Any) -> subprocess.Popen[bytes]:
        """Start a command and do not wait."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = MASKREG if self.programs is None else str(self.programs / "maskreg")
        return subprocess.Popen([program, *map(str, args)], **{"env": self.env, "cwd": self.home, **pipes, **kwargs})

    def run(self, *args: str | Path, exit: int = 0) -> str:
        """Run a command that must end with ``exit``; gives stdout, and stderr when it is to fail."""
        done = subprocess.run(
            ["maskreg", *map(str, args)], env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True
        )
        said = f"maskreg {shlex.join(map(str, args))}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        assert done.returncode == exit, f"exit {done.returncode}, not {exit}: {said}"
        return done.stdout.decode() if exit == 0 else done.stderr.decode()

    def json(self, *args: str | Path) -> Any:
        """What a command says with ``--json``."""
        return json.loads(self.run(*args, "--json"))

    def sh(self, line: str) -> subprocess.CompletedProcess[bytes]:
        """Run a line in plain sh."""
        return subprocess.run(
            ["sh", "-c", line], env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True
        )


def big_pair(folder: Path, mebibytes: int, *, shards: int = 4, seed: int = 0) -> tuple[Path, Path]:
    """A source and a target of about that size, in tensors of 4 MiB, half of whose coordinates move."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, Tensor] = {}
    for number in range(mebibytes // 4):
        values = rng.standard_normal((1024, 2048), np.float32) * np.float32(0.02)
        tensors[f"model.layers.{number}.mlp.up_proj.weight"] = (
            "BF16",
            (values.view(np.uint32) >> 16).astype(np.uint16),
        )
    target = {name: moved(tensor, 0.5, seed=i) for i, (name, tensor) in enumerate(tensors.items())}
    return (
        make_checkpoint(folder / "source", tensors, shards=shards),
        make_checkpoint(folder / "target", target, shards=shards),
    )


def same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    names = [sorted(p.relative_to(d).as_posix() for p in d.rglob("*") if p.is_file()) for d in (one, other)]
    return names[0] == names[1] and all((one / n).read_bytes() == (other / n).read_bytes() for n in names[0])
