"""Findings about a small model, whose names are as bad as a checkpoint's may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.ref import Card
from maskreg.report.findings import Findings, Named, gather
from tests.browser import browser
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.making import extracted, opened

__all__ = ["browser"]

EVIL = "<script>document.title='owned'</script>&\"'$\\frac{1}{2}$"
"""What must come out as text wherever it is shown."""


def tensors() -> dict[str, Tensor]:
    found = {"model.embed_tokens.weight": bf16((200, 16), 1), f"{EVIL}.weight": bf16((64,), 2)}
    for layer in range(12):
        for number, module in enumerate(("self_attn.q_proj", "mlp.up_proj", f"mlp.{EVIL}")):
            found[f"model.layers.{layer}.{module}.weight"] = bf16((32, 16), 3 + 3 * layer + number)
    return found


def named(folder: Path, name: str, fraction: float, seed: int, **card: Any) -> Named:
    source = tensors()
    target = {n: moved(t, fraction, seed + i) for i, (n, t) in enumerate(source.items())}
    return Named(name, extracted(folder, *opened(folder / str(seed), source, target)), Card(**card))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a registry, and of the checkpoints."""
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def masks(home: Path) -> tuple[Named, Named]:
    """Two independent masks of one source."""
    first = named(home, "team/toy-opd:v1", 0.4, 1, family="toy", description=EVIL)
    return first, named(home, "team/toy-rlvr:v1", 0.3, 100)


@pytest.fixture(scope="session")
def found(masks: tuple[Named, Named], home: Path) -> Findings:
    """Everything that can be found about the first."""
    with open_checkpoint(home / "1" / "source") as source:
        return gather(masks[0], masks[1:], source)
