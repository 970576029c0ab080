"""Every method on two real updates, bit for bit against whole models merged in fp32 by the papers' formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.flow.merge import METHODS
from maskreg.flow.merge.merged import MergedCheckpoint
from maskreg.flow.merge.recipe import Recipe
from tests.flow.making import extracted
from tests.flow.merge import dense
from tests.tiny import TINY, needs_tiny

pytestmark = needs_tiny

CASES: list[tuple[str, dict[str, Any], tuple[float, ...], dict[str, Any]]] = [
    ("linear", {}, (1, 1), {}),
    ("linear", {}, (2, -0.5), {"weights": (2, -0.5)}),
    ("task-arithmetic", {"lambda": 0.7}, (1, -0.3), {"weights": (1, -0.3), "scale": 0.7}),
    ("ties", {}, (1, 1), {}),
    ("ties-per-tensor", {"density": 0.3}, (1, 1), {"density": 0.3}),
    ("dare", {}, (1, 1), {}),
    ("dare", {"rescale": "l1", "density": 0.2}, (1, 1), {"rescale": "l1", "density": 0.2}),
    ("breadcrumbs", {"density": 0.4, "gamma": 0.05}, (1, 1), {"density": 0.4, "gamma": 0.05}),
    ("della", {}, (1, 1), {}),
    ("model-stock", {}, (1, 1), {}),
    ("slerp", {"t": 0.3}, (1, 1), {"t": 0.3}),
    ("ram", {}, (1, 1), {}),
    ("ram+", {}, (1, 1), {}),
    ("union", {}, (1, 1), {}),
    ("union", {"conflict": "mean"}, (1, 1), {"conflict": "mean"}),
    ("union", {"conflict": "sign"}, (1, 1), {"conflict": "sign"}),
    ("consensus", {}, (1, 1), {}),
    ("restrict", {}, (1,), {}),
    ("scale", {"factor": 0.5}, (1,), {"factor": 0.5}),
    ("negate", {}, (1,), {}),
]


class Tiny(NamedTuple):
    """Two real updates, as artifacts and as whole models in fp32."""

    source: Checkpoint
    artifacts: list[Artifact]
    models: list[Mapping[str, npt.NDArray[np.float32]]]


def whole(checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.float32]]:
    return {
        name: (checkpoint.read(name, 0, info.numel).astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
        for name, info in checkpoint.tensors.items()
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    checkpoints = [open_checkpoint(TINY / name) for name in ("source", "opd", "rlvr")]
    home = tmp_path_factory.mktemp("home")
    artifacts = [extracted(home, checkpoints[0], target) for target in checkpoints[1:]]
    return Tiny(checkpoints[0], artifacts, [whole(checkpoint) for checkpoint in checkpoints])


def test_every_method_is_held_against_its_formula() -> None:
    assert {case[0] for case in CASES} == set(METHODS)


@pytest.mark.parametrize(("method", "settings", "weights", "given"), CASES)
def test_a_method_is_its_formula(
    tiny: Tiny, method: str, settings: dict[str, Any], weights: tuple[float, ...], given: dict[str, Any]
) -> None:
    artifacts = tiny.artifacts[: len(weights)]
    mask = tiny.artifacts[1] if METHODS[method].masked else None
    made = MergedCheckpoint(artifacts, tiny.source, Recipe.of(method, weights, settings), mask=mask)
    source, *targets = tiny.models
    digests = [artifact.digest for artifact in tiny.artifacts]
    expected = dense.merged(method, source, targets, digests, **given)
    changed = 0
    for name, values in expected.items():
        bits = made.read(name, 0, values.size)
        np.testing.assert_array_equal(bits, dense.rounded(values).reshape(-1), err_msg=name)
        changed += int(np.count_nonzero(values != source[name]))
    assert changed
