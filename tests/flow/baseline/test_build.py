"""Baselines of made pairs, each against what a dense and plain computation says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import maskreg.flow.baseline.build
import maskreg.tensors.info
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.flow.baseline.build import make_baseline
from maskreg.mask import unpack
from maskreg.mask.baseline import KINDS, STARTS, BaselineSpec
from maskreg.mask.rounding import CLASSES, classes_of, fit_flips
from maskreg.store.file import FileStore
from maskreg.tensors.cast import to_bf16
from tests.checkpoints import bf16, f32, make_checkpoint, moved, widened
from tests.flow.making import edge_pair, extracted, left_over, opened

Dense = dict[str, npt.NDArray[np.bool_]]
OPTIONS: dict[str, dict[str, Any]] = {"subset": {"density": 0.004}}
EVERY_KIND = [pytest.param(kind, marks=pytest.mark.torch) if kind in ("principal", "safe") else kind for kind in KINDS]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Checkpoint]:
    folder = tmp_path_factory.mktemp("pair")
    source, target = edge_pair()
    source["model.embed_tokens.weight"] = source["lm_head.weight"] = bf16((40, 16), 11)
    target["model.embed_tokens.weight"] = target["lm_head.weight"] = moved(source["lm_head.weight"], 0.4)
    source["full"], target["full"] = bf16((5, 5), 12), ("BF16", bf16((5, 5), 12)[1] ^ np.uint16(1))
    source["wide"], target["wide"] = f32((20, 20), 13), f32((20, 20), 14)
    source["ids"] = target["ids"] = ("I64", np.arange(7, dtype=np.uint64))
    return opened(folder, source, target)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, pair: tuple[Checkpoint, Checkpoint]) -> Artifact:
    return extracted(tmp_path_factory.mktemp("registry"), *pair)


@pytest.fixture(scope="module")
def source(pair: tuple[Checkpoint, Checkpoint]) -> Checkpoint:
    return pair[0]


def dense(artifact: Artifact) -> Dense:
    return {r.name: unpack(artifact.mask_bits(r), r.numel) for r in artifact.tensors if r.numel}


def baseline(artifact: Artifact, root: Path, source: Checkpoint | None, kind: str, **options: Any) -> Artifact:
    spec = BaselineSpec.of(kind, **{**OPTIONS.get(kind, {}), **options})
    return Artifact.open(FileStore(root), make_baseline(artifact, spec, root, source, jobs=2).digest)


def codes_of(artifact: Artifact, source: Checkpoint, name: str) -> npt.NDArray[np.uint16]:
    row = artifact.by_name[name]
    return to_bf16(source.read(row.name, 0, row.numel), row.source_dtype)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_is_a_whole_artifact(kind: str, artifact: Artifact, source: Checkpoint, tmp_path: Path) -> None:
    made = baseline(artifact, tmp_path, source, kind)
    manifest = made.manifest
    assert (manifest.kind, manifest.exact, manifest.rule) == ("baseline", False, artifact.manifest.rule)
    assert manifest.parents == (artifact.digest,)
    assert manifest.recipe is not None and manifest.recipe["kind"] == kind
    assert manifest.source == manifest.target == artifact.manifest.source
    assert set(manifest.parts) == {"mask"}
    assert made.verify() == {"mask"}
    for row, old in zip(made.tensors, artifact.tensors, strict=True):
        assert (row.name, row.role, row.layer, row.aliases) == (old.name, old.role, old.layer, old.aliases)
        assert row.numel == old.numel
        assert row.source_fingerprint == row.target_fingerprint == old.source_fingerprint
        assert row.nnz == (np.count_nonzero(unpack(made.mask_bits(row), row.numel)) if row.numel else 0)
        assert (row.differing, row.energy) == (0, 0.0)
    assert set(made.mask) == set(artifact.mask)
    assert left_over(tmp_path / "staging") == []


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_threads_batches_and_blocks_do_not_matter(
    kind: str, artifact: Artifact, source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = BaselineSpec.of(kind, **OPTIONS.get(kind, {}))
    one = make_baseline(artifact, spec, tmp_path, source, jobs=1)
    monkeypatch.setattr(maskreg.flow.baseline.build, "BATCH_NUMEL", 1000)
    monkeypatch.setattr(maskreg.tensors.info, "BLOCK_NUMEL", 1 << 18)  # a tensor of many blocks
    assert make_baseline(artifact, spec, tmp_path, source, jobs=4) == one


def test_random_ones_have_the_numbers_they_promise(artifact: Artifact, source: Checkpoint, tmp_path: Path) -> None:
    everywhere = baseline(artifact, tmp_path, None, "random-global", seed=3)
    assert everywhere.manifest.totals.nnz == artifact.manifest.totals.nnz
    assert {r.name: r.nnz for r in everywhere.tensors} != {r.name: r.nnz for r in artifact.tensors}
    each = baseline(artifact, tmp_path, None, "random-per-tensor", seed=3)
    assert {r.name: r.nnz for r in each.tensors} == {r.name: r.nnz for r in artifact.tensors}
    old, new = dense(artifact), dense(each)
    for name, expected in old.items():
        # Independent of the mask: within five standard deviations of p^2 n.
        n, p = expected.size, expected.mean()
        spread = math.sqrt(n) * p * (1 - p)
        assert abs(np.count_nonzero(expected & new[name]) - n * p * p) <= 5 * spread + 1


def test_exponents_are_matched(artifact: Artifact, source: Checkpoint, tmp_path: Path) -> None:
    made = baseline(artifact, tmp_path, source, "exponent-matched")
    old, new = dense(artifact), dense(made)
    assert any(not np.array_equal(old[name], new[name]) for name in old)
    for name in old:
        classes = classes_of(codes_of(artifact, source, name))
        assert np.array_equal(np.bincount(classes[old[name]]), np.bincount(classes[new[name]]))


@pytest.mark.parametrize(("kind", "off_grid"), [("rounding-null", {"half", "wide"}), ("off-grid-null", set())])
def test_rounding_alone(kind: str, off_grid: set[str], artifact: Artifact, source: Checkpoint, tmp_path: Path) -> None:
    spec = BaselineSpec.of(kind, seed=9)
    done = make_baseline(artifact, spec, tmp_path, source)
    made = Artifact.open(FileStore(tmp_path), done.digest)
    old, new = dense(artifact), dense(made)
    as_they_are = off_grid | {n for n, bits in old.items() if bits.mean() in (0.0, 1.0)}
    assert {"full", "unchanged"} < as_they_are
    assert all(any(name in note for note in done.notes) for name in as_they_are)
    for name, bits in old.items():
        assert np.count_nonzero(new[name]) == np.count_nonzero(bits)
        assert np.array_equal(bits, new[name]) or name not in as_they_are
    assert np.array_equal(old["half"], new["half"]) == ("half" in as_they_are)
    # By class as many as noise of the fitted size moves, within five binomial standard deviations.
    for name in {"large", "half"} - as_they_are:
        classes = classes_of(codes_of(artifact, source, name))
        members = np.bincount(classes, minlength=CLASSES)
        chances = fit_flips(members, int(old[name].sum()), STARTS[kind])
        found = np.bincount(classes[new[name]], minlength=CLASSES)
        assert (np.abs(found - members * chances) <= 5 * np.sqrt(members * chances * (1 - chances)) + 1).all()


def test_low_magnitudes(artifact: Artifact, source: Checkpoint, tmp_path: Path) -> None:
    made = baseline(artifact, tmp_path, source, "low-magnitude")
    for name, bits in dense(artifact).items():
        expected = np.zeros(bits.size, np.bool_)
        order = np.argsort(codes_of(artifact, source, name) & 0x7FFF, kind="stable")
        expected[order[: np.count_nonzero(bits)]] = True
        assert np.array_equal(dense(made)[name], expected)


def by_scores(weights: npt.NDArray[np.float32], rank: int, wanted: int) -> npt.NDArray[np.bool_]:
    u, s, v = np.linalg.svd(np.nan_to_num(weights.astype(np.float64), posinf=0, neginf=0), full_matrices=False)
    taken = np.zeros(weights.size, np.bool_)
    taken[np.argsort(-np.abs((u[:, :rank] * s[:rank]) @ v[:rank]).reshape(-1), kind="stable")[:wanted]] = True
    return taken


EXPERTS = "model.layers.0.mlp.experts.down_proj"


@pytest.mark.torch
def test_principal_and_safe(artifact: Artifact, source: Checkpoint, tmp_path: Path) -> None:
    principal = dense(baseline(artifact, tmp_path, source, "principal"))
    safe = dense(baseline(artifact, tmp_path, source, "safe", alpha=0.3, rank=2))
    old = dense(artifact)
    for name, slices, shape, rank in (("odd", 1, (3, 67), 1), (EXPERTS, 3, (16, 24), 2), ("wide", 1, (20, 20), 2)):
        codes = codes_of(artifact, source, name)
        weights = (codes.astype(np.uint32) << 16).view(np.float32).reshape(slices, *shape)
        wanted = [int(part.sum()) for part in np.split(old[name], slices)]
        expected = np.concatenate([by_scores(w, rank, k) for w, k in zip(weights, wanted, strict=True)])
        assert np.array_equal(principal[name], expected)
        size = shape[0] * shape[1]
        large = np.concatenate([by_scores(w, 2, math.ceil(0.3 * size)) for w in weights])
        small = np.zeros(codes.size, np.bool_)
        small[np.argsort(codes & 0x7FFF, kind="stable")[: math.ceil(0.3 * codes.size)]] = True
        assert np.array_equal(safe[name], ~large | small)


def test_subsets_hold_each_other(artifact: Artifact, tmp_path: Path) -> None:
    old = dense(artifact)
    more = dense(baseline(artifact, tmp_path, None, "subset", density=0.015, seed=1))
    made = baseline(artifact, tmp_path, None, "subset", density=0.01, seed=1)
    less, totals = dense(made), made.manifest.totals
    assert totals.nnz == round(0.01 * totals.numel)
    for name in old:
        assert not (less[name] & ~more[name]).any()
        assert not (more[name] & ~old[name]).any()


def test_the_complement(artifact: Artifact, tmp_path: Path) -> None:
    done = make_baseline(artifact, BaselineSpec.of("complement"), tmp_path)
    old, new = dense(artifact), dense(Artifact.open(FileStore(tmp_path), done.digest))
    assert all(np.array_equal(new[name], ~old[name]) for name in old)
    assert len(done.notes) == 1


@pytest.mark.parametrize(
    "kind",
    [
        *("exponent-matched", *STARTS, "low-magnitude"),
        *(pytest.param(kind, marks=pytest.mark.torch) for kind in ("principal", "safe")),
    ],
)
def test_every_leaf_of_the_source_is_checked(kind: str, tmp_path: Path) -> None:
    """One bit in a leaf that is neither a tensor's first nor its last."""
    weights = bf16((3 << 18,), 1)
    source, target = opened(tmp_path, {"w": weights}, {"w": moved(weights)})
    artifact = extracted(tmp_path / "registry", source, target)
    with pytest.raises(UsageError, match=kind):
        make_baseline(artifact, BaselineSpec.of(kind), tmp_path / "registry")
    damaged = weights[1].copy()
    damaged[(1 << 18) + 5] ^= 1
    with (
        open_checkpoint(make_checkpoint(tmp_path / "damaged", {"w": ("BF16", damaged)})) as other,
        pytest.raises(WrongCheckpointError, match="262144"),
    ):
        make_baseline(artifact, BaselineSpec.of(kind), tmp_path / "registry", other)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("full", [False, True])
def test_masks_of_nothing_and_of_everything(full: bool, kind: str, tmp_path: Path) -> None:
    weights = {"a": bf16((30, 4), 1), "b": bf16((9,), 2)}
    other = {name: ("BF16", bits ^ np.uint16(1)) for name, (_, bits) in weights.items()}
    source, target = opened(tmp_path, weights, other if full else weights)
    artifact = extracted(tmp_path / "registry", source, target)
    root, spec = tmp_path / "registry", BaselineSpec.of(kind, density=0.1 if kind == "subset" else None)
    if refusal := {
        **{(null, True): "everything moved" for null in STARTS},
        **{(null, False): "nothing moved" for null in STARTS},
        ("subset", False): "the mask is empty",
    }.get((kind, full)):
        with pytest.raises(UsageError, match=refusal):
            make_baseline(artifact, spec, root, source)
        return
    made = Artifact.open(FileStore(root), make_baseline(artifact, spec, root, source).digest)
    if kind not in ("safe", "subset"):
        assert made.manifest.totals.nnz == (129 if full != (kind == "complement") else 0)


def test_a_rounding_null_that_would_be_the_mask_is_refused(tmp_path: Path) -> None:
    """Numbers that are not finite move under no noise: with nothing else, there is nothing to draw."""
    nothing = ("BF16", np.full((8, 8), 0x7FC0, np.uint16))
    some = ("BF16", np.where(np.arange(64).reshape(8, 8) < 9, 0x3F80, 0x7FC0).astype(np.uint16))
    still = bf16((5, 5), 3)
    source, target = opened(tmp_path / "one", {"nan": nothing, "still": still}, {"nan": some, "still": still})
    artifact = extracted(tmp_path / "registry", source, target)
    with pytest.raises(UsageError, match=r"\b9 .*\b0 .*: nan; .*: still"):
        make_baseline(artifact, BaselineSpec.of("rounding-null"), tmp_path / "registry", source)
    assert left_over(tmp_path / "registry" / "staging") == []


def test_there_is_no_rounding_null_off_the_grid(tmp_path: Path) -> None:
    weights = bf16((30, 4), 1)
    source, target = opened(tmp_path, {"w": widened(weights)}, {"w": widened(moved(weights))})
    artifact = extracted(tmp_path / "registry", source, target, mask_only=True)
    with pytest.raises(UsageError, match="F32") as caught:
        make_baseline(artifact, BaselineSpec.of("rounding-null"), tmp_path / "registry", source)
    assert "off-grid-null" in caught.value.hint
    for possible in ("exponent-matched", "off-grid-null"):
        assert baseline(artifact, tmp_path / "registry", source, possible).manifest.totals.nnz


def test_tensors_that_one_side_lacks(tmp_path: Path) -> None:
    weights = bf16((30, 4), 1)
    source, target = opened(
        tmp_path,
        {"w": weights, "gone": bf16((6,), 2), "grown": bf16((4, 4), 3)},
        {"w": moved(weights, 0.5), "new": bf16((5,), 4), "grown": bf16((8, 4), 3)},
    )
    artifact = extracted(tmp_path / "registry", source, target, allow_mismatch=True)
    made = baseline(artifact, tmp_path / "registry", source, "low-magnitude")
    assert {row.name: row.numel for row in made.tensors} == {"w": 120, "gone": 0, "grown": 0}
    assert made.verify() == {"mask"}
    assert list(made.mask) == ["w"]
