"""The merged model as a checkpoint: every kind of tensor, every split into blocks and rows, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import PairMismatchError, PartAbsentError, UsageError, WrongCheckpointError
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from maskreg.flow.masks import combine
from maskreg.flow.merge.checkpoint import MergedCheckpoint, compute, store, write
from maskreg.flow.merge.methods import METHODS
from maskreg.flow.merge.recipe import Recipe
from maskreg.store.file import FileStore
from tests.checkpoints import Tensor, bf16, f16, f32, make_checkpoint, moved
from tests.flow.making import BLOCK, SPECIAL, bits, edge_pair, extracted, opened, stored
from tests.flow.merge import dense

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def artifacts_of(
    folder: Path, source: Mapping[str, Tensor], targets: Sequence[Mapping[str, Tensor]], **options: Any
) -> tuple[Checkpoint, list[Artifact]]:
    """The source, opened, and an artifact of each target."""
    made = []
    for number, target in enumerate(targets):
        pair = opened(folder / str(number), source, target)
        made.append(extracted(folder / "home", *pair, **options))
    return open_checkpoint(folder / "0" / "source"), made


def merged(source: Checkpoint, artifacts: Sequence[Artifact], method: str, **settings: Any) -> MergedCheckpoint:
    jobs = settings.pop("jobs", 2)
    weights = settings.pop("weights", [1.0] * len(artifacts))
    return MergedCheckpoint(artifacts, source, Recipe.of(method, weights, settings), jobs=jobs)


def whole(tensors: Mapping[str, Tensor]) -> dict[str, npt.NDArray[np.float32]]:
    return {name: (codes.astype(np.uint32) << 16).view(np.float32) for name, (_, codes) in tensors.items()}


def is_dense(made: MergedCheckpoint, models: Sequence[Mapping[str, Tensor]], **settings: Any) -> None:
    """Whether every tensor is what the method's formula gives for whole models, bit for bit."""
    source, *targets = map(whole, models)
    digests = [delta.artifact.digest for delta in made.inputs.deltas]
    for name, values in dense.merged(made.recipe.method.name, source, targets, digests, **settings).items():
        found = made.read(name, 0, values.size)
        np.testing.assert_array_equal(found, dense.rounded(values).reshape(-1), err_msg=name)


def read(checkpoint: MergedCheckpoint) -> dict[str, npt.NDArray[Any]]:
    return {name: checkpoint.read(name, 0, info.numel) for name, info in checkpoint.tensors.items()}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, list[Artifact], list[dict[str, Tensor]]]:
    """Two updates of a tensor of two blocks, one of whose rows is in both, and of small ones; many equal changes."""
    source = {"rows.weight": bf16((2, BLOCK // 2 + 411), 1), "small.weight": bf16((5, 700), 2), "b": bf16((9,), 3)}
    # Few exponents, so that sizes tie at every cut.
    source = {name: (dtype, codes & np.uint16(0xFE7F)) for name, (dtype, codes) in source.items()}
    targets = [{name: moved(t, 0.4, seed) for name, t in source.items()} for seed in (1, 2)]
    folder = tmp_path_factory.mktemp("long")
    checkpoint, artifacts = artifacts_of(folder, source, targets)
    return checkpoint, artifacts, [source, *targets]


@pytest.mark.parametrize(
    ("method", "settings"),
    [("ties", {}), ("breadcrumbs", {"density": 0.3, "gamma": 0.05}), ("della", {}), ("dare", {"rescale": "l1"})],
)
def test_blocks_rows_and_ties_do_not_show(
    long: tuple[Checkpoint, list[Artifact], list[dict[str, Tensor]]], method: str, settings: dict[str, Any]
) -> None:
    source, artifacts, models = long
    made = merged(source, artifacts, method, **settings)
    is_dense(made, models, **settings)
    # Any span is a part of the whole.
    start, stop = BLOCK - 1000, BLOCK + 77
    whole_tensor = made.read("rows.weight", 0, made.tensors["rows.weight"].numel)
    np.testing.assert_array_equal(made.read("rows.weight", start, stop), whole_tensor[start:stop])


@pytest.mark.parametrize("density", [0.0, 1e-9, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("method", ["ties", "breadcrumbs"])
def test_the_edges_of_densities(tmp_path: Path, method: str, density: float) -> None:
    source = {"a.weight": bf16((41, 3), 1), "one": bf16((1,), 2)}
    targets = [{name: moved(t, 0.7, seed) for name, t in source.items()} for seed in (1, 2)]
    settings: dict[str, Any] = {"density": density} if method != "breadcrumbs" else {"density": density, "gamma": 0.3}
    is_dense(merged(*artifacts_of(tmp_path, source, targets), method, **settings), [source, *targets], **settings)


IDENTITIES = [
    ("linear", {}),
    ("task-arithmetic", {}),
    ("ties", {"density": 1.0}),
    ("dare", {"density": 1.0}),
    ("breadcrumbs", {"density": 1.0}),
    ("ram", {"epsilon": 0.0}),
    ("ram+", {"epsilon": 0.0}),
    ("union", {}),
    ("consensus", {"k": 1}),
    ("scale", {}),
]


@pytest.mark.parametrize(("method", "settings"), IDENTITIES)
def test_one_artifact_with_weight_1_gives_its_target(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    """Signed zeros, NaN payloads, infinities and steps that fp32 cannot add, in bf16, fp16 and fp32."""
    source, target = edge_pair()
    codes = np.arange(1 << 16, dtype=np.uint16)
    source["every"], target["every"] = bits(codes), bits(np.random.default_rng(3).permutation(codes))
    source["wide"], target["wide"] = f32((40,), 1), f32((40,), 2)
    checkpoint, artifacts = artifacts_of(tmp_path, source, [target])
    for name, values in read(merged(checkpoint, artifacts, method, **settings)).items():
        np.testing.assert_array_equal(values, target[name][1].reshape(-1), err_msg=name)


def test_what_no_artifact_moves_keeps_its_bits(tmp_path: Path) -> None:
    special = bits(np.array(SPECIAL, np.uint16))
    source = {"a": special, "b": bf16((4,), 1)}
    targets = [{"a": special, "b": moved(source["b"], 1.0, seed)} for seed in (1, 2)]
    checkpoint, artifacts = artifacts_of(tmp_path, source, targets)
    for method in METHODS:
        if METHODS[method].operands[1] > 1:
            np.testing.assert_array_equal(read(merged(checkpoint, artifacts, method))["a"], special[1], err_msg=method)


def test_what_is_not_finite_is_taken_from_the_first_that_changes_it(tmp_path: Path) -> None:
    source = {"a": bits([0x3F80, 0x3F80, 0x7F80, 0x3F80, 0x3F80])}
    one = {"a": bits([0x7FC1, 0x3F81, 0x3F80, 0x3F80, 0x3F82])}
    two = {"a": bits([0x3F90, 0x7F80, 0x7F80, 0xFF80, 0x3F84])}
    checkpoint, artifacts = artifacts_of(tmp_path, source, [one, two])
    made = merged(checkpoint, artifacts, "linear")
    assert read(made)["a"].tolist() == [0x7FC1, 0x3F81, 0x3F80, 0xFF80, 0x3F83]
    assert "4 coordinates are NaN or infinite" in " ".join(made.notes)


@pytest.mark.parametrize(("make", "hundred"), [(bf16, 0x42C8), (f16, 0x5640)])
def test_what_becomes_too_large_is_refused_by_name(tmp_path: Path, make: Any, hundred: int) -> None:
    source = {"a.weight": make((40, 30), 1), "b.weight": make((70_000,), 2)}
    dtype, values = source["b.weight"]
    values = values.copy()
    values[66_000] = hundred
    checkpoint, artifacts = artifacts_of(tmp_path, source, [{**source, "b.weight": (dtype, values)}])
    assert read(merged(checkpoint, artifacts, "scale", factor=2))
    with pytest.raises(UsageError, match=rf"b\.weight: .* 66000 .*{dtype}"):
        write(merged(checkpoint, artifacts, "scale", factor=3e37), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_numbers_of_every_width(tmp_path: Path) -> None:
    source = {"half": f16((31, 3), 1), "wide": f32((31, 3), 2), "brain": bf16((31, 3), 3)}
    targets = [
        {"half": f16((31, 3), seed), "wide": f32((31, 3), seed + 1), "brain": bf16((31, 3), seed + 2)}
        for seed in (5, 9)
    ]
    checkpoint, artifacts = artifacts_of(tmp_path, source, targets)
    made = read(merged(checkpoint, artifacts, "task-arithmetic", weights=[0.5, -0.25]))
    kinds = {"half": (np.float16, np.uint16), "wide": (np.float32, np.uint32)}
    for name, (number, code) in kinds.items():
        before, one, two = (t[name][1].view(number).astype(np.float32) for t in (source, *targets))
        expected = (before + ((one - before) * np.float32(0.5) + (two - before) * np.float32(-0.25))).astype(number)
        np.testing.assert_array_equal(made[name], expected.view(code).reshape(-1), err_msg=name)


def test_tensors_that_are_tied_in_one_artifact_only(tmp_path: Path) -> None:
    tied = bf16((70, 16), 1)
    source = {EMBEDDING: tied, HEAD: tied}
    both = dict.fromkeys(source, moved(tied, 0.5, 1))
    apart = {EMBEDDING: moved(tied, 0.4, 2), HEAD: moved(tied, 0.6, 3)}
    checkpoint, artifacts = artifacts_of(tmp_path, source, [both, apart])
    assert [len(artifact.tensors) for artifact in artifacts] == [1, 2]
    made = merged(checkpoint, artifacts, "linear")
    is_dense(made, [source, both, apart])
    assert made.report().whole.numel == 2 * 70 * 16


def test_an_artifact_and_a_checkpoint_of_one_merge_agree(tmp_path: Path) -> None:
    source, target = edge_pair()
    second = {name: moved(tensor, 0.3, 11) for name, tensor in source.items()}
    checkpoint, artifacts = artifacts_of(tmp_path, source, [target, second])
    written = write(merged(checkpoint, artifacts, "union"), tmp_path / "out")
    digest = store(merged(checkpoint, artifacts, "union"), tmp_path / "home", tuple(a.digest for a in artifacts)).digest
    made = Artifact.open(FileStore(tmp_path / "home"), digest)
    made.verify()
    apply(made, checkpoint, tmp_path / "applied")
    assert stored(tmp_path / "out") == stored(tmp_path / "applied")
    assert written.tensors == len(source)
    # It is a checkpoint like any other: read again, it gives the same artifact but for its lineage.
    plain = extract(checkpoint, open_checkpoint(tmp_path / "out"), tmp_path / "home").digest
    plain_manifest = Artifact.open(FileStore(tmp_path / "home"), plain).manifest
    assert made.manifest.objects == plain_manifest.objects
    assert made.manifest.parents == tuple(a.digest for a in artifacts)
    assert made.manifest.recipe == {"kind": "merge", "method": "union", "settings": {"conflict": "first"}}


def test_what_a_report_counts(tmp_path: Path) -> None:
    source = {"model.layers.0.mlp.up_proj.weight": bits(np.full((2, 4), 0x3F80)), "model.norm.weight": bits([0x3F80])}
    one, two = ({n: (d, c.copy()) for n, (d, c) in source.items()} for _ in range(2))
    name = "model.layers.0.mlp.up_proj.weight"
    one[name][1].reshape(-1)[:4] = 0x3F81
    two[name][1].reshape(-1)[2:6] = [0x3F81, 0x3F7F, 0x3F7F, 0x3F7F]
    checkpoint, artifacts = artifacts_of(tmp_path, source, [one, two])
    made = merged(checkpoint, artifacts, "consensus")
    compute(made)
    report = made.report().to_json()
    assert report["roles"]["ffn"] == {
        "numel": 8,
        "before": [4, 4],
        "union": 6,
        "conflicts": 2,
        "disagreements": 1,
        "after": 1,
        "density_before": [0.5, 0.5],
        "density_after": 0.125,
    }
    assert report["roles"]["norm"]["after"] == 0
    assert report["whole"]["numel"] == 9


def test_tensors_that_cannot_be_merged_are_taken_or_refused(tmp_path: Path) -> None:
    source = {"a.weight": bf16((30, 4), 1), "b.weight": bf16((9,), 2), "steps": ("I64", np.array([5], np.uint64))}
    one = {**source, "a.weight": moved(source["a.weight"], 0.5, 1), "steps": ("I64", np.array([6], np.uint64))}
    two = {**source, "a.weight": moved(source["a.weight"], 0.5, 2), "b.weight": bf16((12,), 3), "new": bf16((5,), 4)}
    checkpoint, artifacts = artifacts_of(tmp_path, source, [one, two], allow_mismatch=True)
    made = merged(checkpoint, artifacts, "linear")
    result = read(made)
    assert result["steps"].tolist() == [6]
    np.testing.assert_array_equal(result["b.weight"], two["b.weight"][1])
    np.testing.assert_array_equal(result["new"], two["new"][1])
    assert ": steps, b.weight, new" in " ".join(made.notes)
    write(made, tmp_path / "out")
    digest = store(made, tmp_path / "home", ()).digest
    apply(Artifact.open(FileStore(tmp_path / "home"), digest), checkpoint, tmp_path / "o")
    assert stored(tmp_path / "out") == stored(tmp_path / "o")
    three = {**one, "b.weight": bf16((12,), 8)}
    checkpoint, others = artifacts_of(tmp_path / "x", source, [two, three], allow_mismatch=True)
    with pytest.raises(PairMismatchError, match=r"b\.weight: .* BF16 \[12\]"):
        merged(checkpoint, others, "linear")


def test_small_files_that_all_agree_on_are_taken(tmp_path: Path) -> None:
    tensors = {"a": bf16((8,), 1)}
    source = make_checkpoint(tmp_path / "source", tensors, files={"config.json": b"{}", "notice.txt": b"old"})
    new = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}", "run.py": b"pass"}
    artifacts = []
    for number in range(2):
        files = {**new, "notice.txt": b"new %d" % number}
        target = make_checkpoint(tmp_path / str(number), {"a": moved(tensors["a"], 0.5, number)}, files=files)
        artifacts.append(extracted(tmp_path / "home", open_checkpoint(source), open_checkpoint(target), with_code=True))
    with merged(open_checkpoint(source), artifacts, "linear") as made:
        files_of_it = {name: path.read_bytes() for name, path in made.small_files().items()}
        assert files_of_it == {"config.json": b'{"a": 1}', "tokenizer.json": b"{}", "notice.txt": b"old"}
        notes = " ".join(made.notes)
        write(made, tmp_path / "out")
    assert ": notice.txt" in notes
    assert ": run.py" in notes
    assert (tmp_path / "out/config.json").read_bytes() == b'{"a": 1}'
    assert not (tmp_path / "out/run.py").exists()


def test_what_a_merge_needs(tmp_path: Path) -> None:
    source = {"a": bf16((30, 4), 1)}
    target = {"a": moved(source["a"])}
    checkpoint, (artifact,) = artifacts_of(tmp_path, source, [target])
    with pytest.raises(WrongCheckpointError):
        merged(open_checkpoint(tmp_path / "0/target"), [artifact], "linear")
    mask = Artifact.open(FileStore(tmp_path), combine([artifact, artifact], tmp_path, how="and"))
    with pytest.raises(PartAbsentError):
        merged(checkpoint, [mask], "linear")
    with pytest.raises(UsageError, match="restrict"):
        merged(checkpoint, [artifact], "restrict")
    with pytest.raises(UsageError, match=r"sce .*2.* 1 "):
        merged(checkpoint, [artifact], "sce")
    only = MergedCheckpoint([artifact], checkpoint, Recipe.of("restrict", [1.0]), mask=mask)
    np.testing.assert_array_equal(only.read("a", 0, 120), target["a"][1].reshape(-1))


@pytest.mark.parametrize(
    ("method", "weights", "settings", "said"),
    [
        ("mean", [1], {}, "unknown merge method"),
        ("linear", [1], {"lambda": 2}, "linear has no setting 'lambda'"),
        ("linear", [1, -1], {}, "weights add up to 0"),
        ("linear", [float("nan")], {}, "finite"),
        ("linear", [1e39, 1], {}, "weights of 1e\\+39 in all, and fp32 ends"),
        ("task-arithmetic", [3e38, -3e38], {}, "fp32 ends"),
        ("task-arithmetic", [1], {"lambda": 1e39}, "from -3.40282e\\+38 to"),
        ("sce", [1, 2], {}, "takes no weights"),
        ("ties", [1], {"density": 1.5}, "from 0 to 1"),
        ("ties", [1], {"density": "much"}, "must be a number"),
        ("ties", [1], {"density": float("nan")}, "must be a number"),
        ("ties", [1], {"density": True}, "must be a number"),
        ("dare", [1], {"seed": 1.5}, "must be a whole number"),
        ("dare", [1], {"seed": "-1"}, "must be a whole number"),
        ("dare", [1], {"rescale": "twice"}, "rescale is 'twice'"),
        ("della", [1], {"epsilon": 1.0}, "probabilities"),
        ("consensus", [1, 1], {"k": 3}, "k is 3, and only 2 artifacts"),
        ("scale", [1], {"factor": "1e999"}, "must be a number"),
        ("scale", [1], {"factor": "-1e39"}, "from -3.40282e\\+38 to"),
    ],
)
def test_recipes_that_make_no_sense(method: str, weights: list[float], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Recipe.of(method, weights, settings)
