"""Every flow that hands out tasks gives the same when they are pickled and worked on in another process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.checkpoint import open_checkpoint
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import Selection
from maskreg.engine import running_on
from maskreg.exchange.base import Masks
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.baseline.build import make_baseline
from maskreg.flow.extract.extraction import extract
from maskreg.flow.geometry.exponents import by_exponent
from maskreg.flow.masks import combine, store_mask
from maskreg.flow.merge.checkpoint import MergedCheckpoint, compute, store, write
from maskreg.flow.merge.recipe import Recipe
from maskreg.flow.overlap.measure import measure_overlap
from maskreg.flow.overlap.survey import survey_overlaps
from maskreg.mask.baseline import BaselineSpec
from maskreg.store.file import FileStore
from maskreg.tensors.info import blocks_of
from tests.checkpoints import bf16, f32, make_checkpoint, moved, write_safetensors
from tests.engine.subprocesses import SubprocessEngine
from tests.flow.making import BLOCK, extracted


@dataclass(frozen=True)
class Pairs:
    """A source, two targets, and their artifacts."""

    source: Checkpoint
    targets: tuple[Checkpoint, Checkpoint]
    artifacts: tuple[Artifact, Artifact]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Models of 8 MiB: one tensor has two blocks, and a row in both."""
    folder = tmp_path_factory.mktemp("pairs")
    source = {
        "rows.weight": bf16((2, BLOCK // 2 + 411), 1),
        **{f"model.layers.{n}.mlp.up_proj.weight": bf16((48, 64), n) for n in range(4)},
        "model.norm.weight": bf16((64,), 9),
    }
    targets = [{name: moved(tensor, 0.3, seed) for name, tensor in source.items()} for seed in (1, 2)]
    made = [make_checkpoint(folder / str(n), tensors, shards=2) for n, tensors in enumerate([source, *targets])]
    opened, *others = map(open_checkpoint, made)
    artifacts = [extracted(folder / "home", opened, other, reversible=True) for other in others]
    return Pairs(opened, (others[0], others[1]), (artifacts[0], artifacts[1]))


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


def applied(pairs: Pairs, folder: Path) -> Any:
    return files_of(Path(str(apply(pairs.artifacts[0], pairs.source, folder / "out").out)))


def merged(pairs: Pairs, folder: Path) -> Any:
    """Two methods, of which the second knows of tensors as a whole; all that merging can make."""
    done: list[Any] = []
    for method in ("ties", "ties-per-tensor", "model-stock"):
        with MergedCheckpoint(pairs.artifacts, pairs.source, Recipe.of(method, [1.0, 1.0])) as model:
            compute(model)
            done.append(model.report().to_json())
        with MergedCheckpoint(pairs.artifacts, pairs.source, Recipe.of(method, [1.0, 1.0])) as model:
            done.append(files_of(Path(str(write(model, folder / method).out))))
            done.append(model.report().to_json())
    with MergedCheckpoint(pairs.artifacts, pairs.source, Recipe.of("dare", [1.0, 1.0])) as model:
        stored = store(model, folder / "home", tuple(artifact.digest for artifact in pairs.artifacts))
        done += [stored.digest, model.report().to_json()]
    return done


def baselines(pairs: Pairs, folder: Path) -> Any:
    kinds = ("random-per-tensor", "exponent-matched", "low-magnitude")
    return [make_baseline(pairs.artifacts[0], BaselineSpec.of(k), folder, pairs.source).digest for k in kinds]


def stored(pairs: Pairs, folder: Path) -> Any:
    def half(numel: int) -> Callable[[], Any]:
        return lambda: iter([np.arange(*block) % 2 == 0 for block in blocks_of(numel)])

    return store_mask(Masks({name: half(t.numel) for name, t in pairs.source.tensors.items()}), pairs.source, folder)


def exponents(pairs: Pairs, folder: Path) -> Any:
    figures = by_exponent(pairs.artifacts[0], pairs.source)
    return figures.members.tolist(), figures.moved.tolist(), figures.elsewhere


def updates(pairs: Pairs, folder: Path) -> Any:
    from maskreg.flow.geometry.updates import compare_updates

    return [pair.to_json() for pair in compare_updates(pairs.artifacts, pairs.source, selection=FFN)]


def analyzed(pairs: Pairs, folder: Path) -> Any:
    from maskreg.flow.geometry.analysis import analysis_spec, analyze

    return analyze(pairs.artifacts[0], pairs.source, None, folder, analysis_spec(selection=FFN)).document


def followed(pairs: Pairs, folder: Path) -> Any:
    from maskreg.flow.geometry.analysis import analysis_spec
    from maskreg.flow.geometry.trajectory import ON_REQUEST, trajectory

    spec = analysis_spec(metrics=sorted(ON_REQUEST), selection=FFN)
    return trajectory(pairs.source, pairs.targets, spec, by="role")


def moments(pairs: Pairs, folder: Path) -> Any:
    from maskreg.checkpoint.moments import open_moments
    from maskreg.flow.geometry.updates import measure_moments

    shapes = {name: info.shape for name, info in pairs.source.tensors.items() if "mlp" in name}
    state = {f"{name}.exp_avg": f32(shape, 5) for name, shape in shapes.items()}
    state |= {f"{name}_sq": ("F32", bits & np.uint32(0x7FFFFFFF)) for name, (_, bits) in state.items()}
    folder.mkdir()
    with open_moments(write_safetensors(folder / "state.safetensors", state)) as opened:
        document = measure_moments(opened, pairs.artifacts[0], pairs.source)
    return {name: value for name, value in document.items() if name != "state"}


FFN = Selection.parse(["ffn"])
FLOWS: Mapping[str, Callable[[Pairs, Path], Any]] = {
    "extract": lambda pairs, folder: extract(pairs.source, pairs.targets[0], folder, reversible=True).digest,
    "apply": applied,
    "merge": merged,
    "compare": lambda pairs, _: measure_overlap(pairs.artifacts, pairs.source).to_json(),
    "survey": lambda pairs, _: survey_overlaps(pairs.artifacts, pairs.source).to_json(),
    "baseline": baselines,
    "verify": lambda pairs, _: list(recount(pairs.artifacts[0])),
    "combine": lambda pairs, folder: combine(pairs.artifacts, folder, how="and"),
    "store a mask": stored,
    "exponents": exponents,
    "analyze": analyzed,
    "trajectory": followed,
    "updates": updates,
    "moments": moments,
}
"""What hands out tasks; each must be here."""

NEED_TORCH = ("analyze", "trajectory", "updates", "moments")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.torch) if name in NEED_TORCH else name for name in FLOWS]
)
def test_a_flow_gives_the_same_in_another_process(
    name: str, pairs: Pairs, subprocess_engine: SubprocessEngine, tmp_path: Path
) -> None:
    here = FLOWS[name](pairs, tmp_path / "here")
    with running_on("subprocess"):
        assert FLOWS[name](pairs, tmp_path / "there") == here
    assert subprocess_engine.largest_task
    # The model has 8 MiB, and what travels says where that is. Masks alone go with tasks, at a bit for each coordinate.
    assert subprocess_engine.largest_work < 1 << 18
    assert subprocess_engine.largest_task < 3 << 19


def test_applying_hashes_no_object_again_that_another_process_has_hashed(
    pairs: Pairs, subprocess_engine: SubprocessEngine, tmp_path: Path
) -> None:
    # A store of its own, of which that process has nothing open yet.
    shutil.copytree(pairs.artifacts[0].store.url.removeprefix("file://"), tmp_path / "home")
    artifact = Artifact.open(FileStore(tmp_path / "home"), pairs.artifacts[0].digest)
    with running_on("subprocess"):
        apply(artifact, pairs.source, tmp_path / "out")
    own = artifact.newly_hashed()
    assert [key for key in own if "/mask/c/" in key]
    assert not [key for key in own if "/delta/c/" in key]
