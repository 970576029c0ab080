"""Every feature that reads a source asks the same strict question of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.device import open_device
from maskreg.errors import WrongCheckpointError, WrongTargetError
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.geometry.exponents import by_exponent
from maskreg.flow.geometry.reading import UpdateReader
from maskreg.mask.baseline import BaselineSpec
from tests.checkpoints import bf16, make_checkpoint
from tests.flow.making import compared, edge_pair, extracted, opened


def analyzed(artifact: Artifact, source: Checkpoint, root: Path) -> None:
    from maskreg.flow.geometry.analysis import analyze

    analyze(artifact, source, None, root)


USES: dict[str, Callable[[Artifact, Checkpoint, Path], Any]] = {
    "apply": lambda artifact, source, root: apply(artifact, source, root / "out"),
    "baseline": lambda artifact, source, root: make_baseline(artifact, BaselineSpec.of("low-magnitude"), root, source),
    "geometry": analyzed,
    "reading": lambda artifact, source, root: UpdateReader(artifact, source, None, open_device("cpu")),
    "exponents": lambda artifact, source, root: by_exponent(artifact, source),
    "overlap": lambda artifact, source, root: compared([artifact, artifact], source),
}


@pytest.mark.parametrize(
    "use", [pytest.param(use, marks=pytest.mark.torch) if use == "geometry" else use for use in USES]
)
def test_a_source_with_a_tensor_more_is_refused(use: str, tmp_path: Path) -> None:
    source, target = edge_pair()
    artifact = extracted(tmp_path / "root", *opened(tmp_path, source, target))
    with (
        open_checkpoint(make_checkpoint(tmp_path / "wrong", {**source, "more": bf16((3,))})) as wrong,
        pytest.raises(WrongCheckpointError, match="tensor more: "),
    ):
        USES[use](artifact, wrong, tmp_path / "root")


def test_a_target_with_a_tensor_more_is_refused(tmp_path: Path) -> None:
    source, target = edge_pair()
    opened_source, opened_target = opened(tmp_path, source, target)
    artifact = extracted(tmp_path / "root", opened_source, opened_target, reversible=True)
    wrong = open_checkpoint(make_checkpoint(tmp_path / "wrong", {**target, "more": bf16((3,))}))
    for use, error in (
        (lambda: UpdateReader(artifact, opened_source, wrong, open_device("cpu")), WrongTargetError),
        (lambda: apply(artifact, wrong, tmp_path / "out", revert=True), WrongCheckpointError),
    ):
        with pytest.raises(error, match="tensor more: "):
            use()


def test_masks_of_different_sources_need_the_tensors_they_share_alone(tmp_path: Path) -> None:
    """Two masks share a tower; any checkpoint that has it will do."""
    shared, after = edge_pair()
    masks, checkpoints = [], []
    for name in ("left", "right"):
        own = {name: bf16((6, 4), len(name))}
        pair = opened(tmp_path / name, {**shared, **own}, {**after, **own})
        masks.append(extracted(tmp_path / "root", *pair, mask_only=True))
        checkpoints.append(pair[0])
    comparisons = [compared(masks, source, allow_different=True).pairs[0] for source in checkpoints]
    assert comparisons[0].to_json() == comparisons[1].to_json()
    wrong = {**shared, "odd": bf16(shared["odd"][1].shape, 99)}
    with pytest.raises(WrongCheckpointError, match=" odd: "):
        compared(masks, open_checkpoint(make_checkpoint(tmp_path / "wrong", wrong)), allow_different=True)
