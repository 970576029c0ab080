"""``maskreg retrain`` on a small model and a few sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Done, Run
from tests.train.making import make_model, make_target, sums

FEW = ["--batch-size", "4", "-c", "max_steps=3", "-c", "learning_rate=1e-3"]

Train = Callable[..., Done]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    # These models are too small to be shared by threads, which would only wait for each other.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "source", seed=1)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "teacher", seed=2)


@pytest.fixture(scope="session")
def target(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(source, tmp_path_factory.mktemp("models") / "target")


@pytest.fixture
def train(run: Run, source: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Runs sft on some sums with a mask called toy, unless told otherwise."""
    run("extract", source, target, "--name", "toy", "--family", "tiny")
    monkeypatch.chdir(tmp_path)
    data = sums(tmp_path / "data.jsonl")

    def call(*args: str | Path, status: int = 0, ref: str | None = "toy", recipe: str = "sft") -> Done:
        given = [str(arg) for arg in args]
        defaults: dict[str, str | Path] = {"--source": source, "--data": data, "-o": tmp_path / "run"}
        filled = [str(word) for name, value in defaults.items() if name not in given for word in (name, value)]
        refs = [] if ref is None else [ref]
        sampled = [] if recipe == "sft" else ["-c", "max_completion_length=4"]
        return run("retrain", *refs, "--recipe", recipe, *filled, *FEW, *sampled, *given, status=status)

    return call
