"""Running commands in this process, and a small artifact to run them on."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from maskreg_cli.main import main

from tests.checkpoints import Tensor, bf16, make_checkpoint, moved


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, which holds one JSON document and nothing else."""
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command in this process and checks how it ended."""
    before = signal.getsignal(signal.SIGTERM)

    def call(*args: str | Path, status: int = 0) -> Done:
        capsys.readouterr()
        ended = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert ended == status, f"exit {ended}, not {status}: {out}\n{err}"
        return Done(ended, out, err)

    yield call
    signal.signal(signal.SIGTERM, before)


def tensors() -> dict[str, Tensor]:
    """A model of two layers, small enough for a test that is about words."""
    found = {"model.embed_tokens.weight": bf16((50, 16), 1), "lm_head.weight": bf16((50, 16), 2)}
    for layer in (0, 1):
        found[f"model.layers.{layer}.self_attn.q_proj.weight"] = bf16((16, 16), 3 + layer)
        found[f"model.layers.{layer}.mlp.up_proj.weight"] = bf16((64, 16), 5 + layer)
    return found


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A source and a target checkpoint."""
    source = tensors()
    target = {name: moved(tensor, 0.4, seed) for seed, (name, tensor) in enumerate(source.items())}
    return make_checkpoint(tmp_path / "source", source), make_checkpoint(tmp_path / "target", target)


@pytest.fixture
def artifact(run: Run, pair: tuple[Path, Path]) -> str:
    """The digest of an artifact called ``toy-opd:v1``."""
    source, target = pair
    found = run("extract", source, target, "--name", "toy-opd:v1", "--family", "toy", "--method", "opd", "--json")
    return str(found.json["digest"])


@pytest.fixture
def two(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> str:
    """The digest of another artifact of the same source, called ``two``."""
    target = {n: moved(t, 0.5, 50 + i) for i, (n, t) in enumerate(tensors().items())}
    path = make_checkpoint(tmp_path / "target-two", target)
    return str(run("extract", pair[0], path, "--name", "two", "--json").json["digest"])


@pytest.fixture
def masks(run: Run, tmp_path: Path) -> tuple[str, str, str]:
    """Two seeds of one recipe and an RLVR reference, from one source."""
    source = make_checkpoint(tmp_path / "source", tensors())
    for name, fraction, method, seed in (("one", 0.4, "opd", "1"), ("two", 0.3, "opd", "2"), ("rl", 0.2, "rlvr", "1")):
        target = {key: moved(tensor, fraction, len(key) + sum(name.encode())) for key, tensor in tensors().items()}
        made = make_checkpoint(tmp_path / name, target)
        words = ["--family", "toy", "--method", method, "--meta", f"seed={seed}", "--mask-only"]
        tag = ":rlvr-reference" if name == "rl" else ""
        run("extract", source, made, "--name", f"{name}{tag}", *words)
    return "one", "two", "rl:rlvr-reference"
