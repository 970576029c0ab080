from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.artifact.reader import Artifact
from maskreg.errors import PairMismatchError, UsageError
from maskreg.flow.masks import combine
from maskreg.mask.algebra import OPERATIONS
from maskreg.store.file import FileStore
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.making import BLOCK, edge_pair, extracted, opened

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def three(folder: Path, **options: Any) -> list[Artifact]:
    """Three masks of one source that has every kind of tensor, one of them longer than a block."""
    source, target = edge_pair()
    source["long"] = bf16((BLOCK + 130,), 9)
    made = []
    for seed, fraction in enumerate((0.2, 0.5, 0.7)):
        other = {n: moved(t, fraction, seed + 1) for n, t in source.items()}
        other["special"] = target["special"]
        pair = opened(folder / str(seed), source, other)
        made.append(extracted(folder / "home", *pair, mask_only=True, **options))
    return made


def dense(artifact: Artifact) -> dict[str, np.ndarray]:
    return {name: mask.to_bool() for name, mask in artifact.mask.items()}


def test_every_operation_on_every_tensor(tmp_path: Path) -> None:
    masks = three(tmp_path)
    home = FileStore(tmp_path / "home")
    parts = [dense(mask) for mask in masks]
    for how, count in [("and", 3), ("or", 3), ("minus", 2), ("xor", 2), ("at least 2", 3)]:
        options: dict[str, Any] = {"how": how} if how in OPERATIONS else {"k": 2}
        made = Artifact.open(home, combine(masks[:count], tmp_path / "home", **options))
        made.verify()
        found = dense(made)
        assert list(found) == list(parts[0])
        for name, bits in found.items():
            stack = np.array([part[name] for part in parts[:count]])
            expected = {
                "and": stack.all(axis=0),
                "or": stack.any(axis=0),
                "minus": stack[0] & ~stack[1:].any(axis=0),
                "xor": stack[0] ^ stack[1],
                "at least 2": stack.sum(axis=0) >= 2,
            }[how]
            np.testing.assert_array_equal(bits, expected, err_msg=f"{how} {name}")
            assert made.by_name[name].nnz == expected.sum()


def test_what_the_result_says_of_itself(tmp_path: Path) -> None:
    masks = three(tmp_path)
    home = tmp_path / "home"
    made = Artifact.open(FileStore(home), combine([masks[1], masks[0], masks[2]], home, k=2)).manifest
    assert made.kind == "mask"
    assert made.parents == (masks[1].digest, masks[0].digest, masks[2].digest)
    assert made.recipe == {"kind": "at-least", "k": 2, "of": 3}
    assert made.source == made.target == masks[0].manifest.source
    assert (made.rule, made.exact, made.totals.energy, made.totals.differing) == ("exact", False, 0.0, 0)
    combined = Artifact.open(FileStore(home), combine(masks, home, how="or"))
    for row, there in zip(combined.tensors, masks[0].tensors, strict=True):
        assert (row.name, row.role, row.layer, row.numel) == (there.name, there.role, there.layer, there.numel)
        assert row.source_fingerprint == row.target_fingerprint == there.source_fingerprint
        np.testing.assert_array_equal(combined.leaves(row)[0], masks[0].leaves(there)[0])
    minus = Artifact.open(FileStore(home), combine(masks[:2], home, how="minus")).manifest
    assert minus.recipe == {"kind": "minus"}
    assert Artifact.open(FileStore(home), combine(masks[1::-1], home, how="minus")).manifest != minus


def one(folder: Path, source: Mapping[str, Tensor], target: Mapping[str, Tensor], **options: Any) -> Artifact:
    return extracted(folder / "home", *opened(folder, source, target), **{"mask_only": True, **options})


def test_a_tensor_that_is_tied_in_one_mask_only(tmp_path: Path) -> None:
    tied = bf16((70, 16), 1)
    source = {EMBEDDING: tied, HEAD: tied}
    both = one(tmp_path / "a", source, dict.fromkeys(source, moved(tied, 0.5, 1)))
    apart = one(tmp_path / "b", source, {EMBEDDING: moved(tied, 0.4, 2), HEAD: moved(tied, 0.6, 3)})
    assert [row.aliases for row in both.tensors] == [(HEAD,)]
    for masks in ([both, apart], [apart, both]):
        made = Artifact.open(FileStore(tmp_path), combine(masks, tmp_path, how="and"))
        assert {row.name: row.role for row in made.tensors} == {EMBEDDING: "embedding", HEAD: "lm_head"}
        for name in source:
            expected = both.mask[name].to_bool() & apart.mask[name].to_bool()
            np.testing.assert_array_equal(made.mask[name].to_bool(), expected)
    still_tied = Artifact.open(FileStore(tmp_path), combine([both, both], tmp_path, how="xor"))
    assert [row.aliases for row in still_tied.tensors] == [(HEAD,)]
    assert still_tied.manifest.totals.nnz == 0


def test_tensors_that_are_not_compared_are_carried_along(tmp_path: Path) -> None:
    source = {"a.weight": bf16((30, 4), 1), "b.weight": bf16((9,), 2)}
    targets = [{"a.weight": moved(source["a.weight"], 0.5, seed), "b.weight": bf16((12,), 3)} for seed in (1, 2)]
    masks = [
        one(tmp_path / str(n), source, {**t, "added": bf16((5,), 4)}, allow_mismatch=True)
        for n, t in enumerate(targets)
    ]
    made = Artifact.open(FileStore(tmp_path), combine(masks, tmp_path, how="or"))
    assert [(row.name, row.numel, row.source_shape) for row in made.tensors] == [
        ("a.weight", 120, (30, 4)),
        ("b.weight", 0, (9,)),
    ]
    assert list(made.mask) == ["a.weight"]
    made.verify()


def test_masks_of_different_sources_or_tensors_are_refused(tmp_path: Path) -> None:
    source = {"a": bf16((30, 4), 1), "b": bf16((9,), 2)}
    first = one(tmp_path / "a", source, {n: moved(t) for n, t in source.items()})
    part = one(tmp_path / "b", source, {**source, "b": bf16((10,), 2)}, allow_mismatch=True)
    with pytest.raises(PairMismatchError) as raised:
        combine([first, part], tmp_path, how="and")
    assert raised.value.tensors == ("b",)
    for number, (change, said) in enumerate(
        [
            ({"b": bf16((9,), 7)}, r"(?m)\b1 .*, b$"),
            ({"b": bf16((3, 3), 2)}, r"\bb .*BF16 \[9\] .*BF16 \[3, 3\]"),
            ({"c": bf16((9,), 7)}, r"(?m) c$"),
        ]
    ):
        changed = {**source, **change}
        other = one(tmp_path / f"other{number}", changed, {n: moved(t) for n, t in changed.items()})
        with pytest.raises(PairMismatchError, match=said):
            combine([first, other], tmp_path, how="and", allow_different=True)
    assert not (tmp_path / "staging").exists()


def test_masks_of_different_rules_are_refused_unless_allowed(tmp_path: Path) -> None:
    source = {"a": bf16((30, 4), 1)}
    target = {"a": moved(source["a"])}
    exact = one(tmp_path / "a", source, target)
    loose = one(tmp_path / "b", source, target, rule="abs:1e-5")
    with pytest.raises(PairMismatchError, match=r"exact .*abs:1e-05") as raised:
        combine([exact, loose], tmp_path, how="minus")
    assert raised.value.facts["options"] == {"allow_different": True}
    made = Artifact.open(FileStore(tmp_path), combine([exact, loose], tmp_path, how="minus", allow_different=True))
    assert made.manifest.rule == "exact"
    assert made.manifest.recipe == {"kind": "minus", "rules": ["exact", loose.manifest.rule]}


@pytest.mark.parametrize(
    ("count", "options", "said"),
    [
        (2, {"how": "nand"}, "unknown operation on masks"),
        (1, {"how": "and"}, "takes two masks"),
        (3, {"how": "minus"}, "exactly two"),
        (3, {"how": "xor"}, "exactly two"),
        (2, {"k": 3}, "at least 3 of 2"),
        (2, {"k": -1}, "at least -1 of 2"),
        (2, {"how": "and", "k": 1}, "nothing to count"),
        (2, {}, "unknown operation on masks"),
    ],
)
def test_questions_that_make_no_sense(tmp_path: Path, count: int, options: dict[str, Any], said: str) -> None:
    source = {"a": bf16((30, 4), 1)}
    mask = one(tmp_path / "a", source, {"a": moved(source["a"])})
    with pytest.raises(UsageError, match=said):
        combine([mask] * count, tmp_path, **options)
