from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.errors import PairMismatchError
from maskreg.flow.extract.extraction import extract
from maskreg.flow.extract.pairing import StoredAs, pair_up
from tests.checkpoints import Tensor, bf16, f16, f32, moved
from tests.flow.making import bits, extracted, opened

I64: Tensor = ("I64", np.arange(6, dtype=np.uint64).reshape(2, 3))


@pytest.mark.parametrize(
    ("source", "target", "mask_only", "how"),
    [
        pytest.param(bf16((4,)), bf16((4,)), False, StoredAs.DELTA, id="bf16"),
        pytest.param(f16((4,)), f16((4,)), False, StoredAs.DELTA, id="fp16"),
        pytest.param(bf16((4,)), f32((4,)), False, StoredAs.CAST, id="fp32 target"),
        pytest.param(bf16((4,)), f32((4,)), True, StoredAs.CAST, id="fp32 target, mask only"),
        pytest.param(f32((4,)), f32((4,)), False, StoredAs.WIDE, id="fp32 among others"),
        pytest.param(f32((4,)), bf16((4,)), False, StoredAs.WIDE, id="fp32 source among others"),
        pytest.param(f16((4,)), f32((4,)), True, StoredAs.WIDE, id="fp32 target of fp16, mask only"),
        pytest.param(I64, I64, False, StoredAs.OPAQUE, id="integers"),
    ],
)
def test_what_is_held_follows_from_the_dtypes(
    source: Tensor, target: Tensor, mask_only: bool, how: StoredAs, tmp_path: Path
) -> None:
    other = bf16((4, 4))
    pairs, _ = pair_up(
        *opened(tmp_path, {"a": other, "w": source}, {"a": other, "w": target}),
        mask_only=mask_only,
        allow_mismatch=False,
    )
    assert {p.name: p.stored_as for p in pairs} == {"a": StoredAs.DELTA, "w": how}


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        pytest.param({"w": bf16((4, 4))}, {"w": bf16((5, 4))}, r"w \(shape \[4, 4\] -> \[5, 4\]\)", id="padded"),
        pytest.param({"w": bf16((4,))}, {"w": f16((4,))}, r"w \(dtype BF16 -> F16\)", id="bf16 to fp16"),
        pytest.param({"w": f16((4,))}, {"w": f32((4,))}, r"w \(dtype F16 -> F32\)", id="fp16 to fp32"),
        pytest.param({"w": bf16((2, 3))}, {"w": I64}, r"w \(dtype BF16 -> I64\)", id="float to integer"),
        pytest.param({"w": bf16((4,))}, {}, r"w \(only in the source\)", id="missing"),
        pytest.param({}, {"w": bf16((4,))}, r"w \(only in the target\)", id="extra"),
    ],
)
def test_what_does_not_pair_up_is_refused_and_named(
    source: dict[str, Tensor], target: dict[str, Tensor], why: str, tmp_path: Path
) -> None:
    other = {"a": bf16((4, 4))}
    with pytest.raises(PairMismatchError, match=why) as caught:
        extract(*opened(tmp_path, other | source, other | target), tmp_path / "root")
    assert caught.value.tensors == ("w",)
    assert caught.value.facts["options"] == {"allow_mismatch": True}
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(("F8_E4M3", np.ones((4, 4), np.uint8)), id="fp8"),
        pytest.param(("F8_E8M0", np.ones(4, np.uint8)), id="fp8 scales"),
        pytest.param(("I8", np.ones((4, 4), np.uint8)), id="int8"),
        pytest.param(("U8", np.ones((4, 4), np.uint8)), id="packed int4"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_quantized_checkpoints_are_refused(tensor: Tensor, side: int, tmp_path: Path) -> None:
    sides = [{"w": bf16((4, 4))}, {"w": bf16((4, 4))}]
    sides[side] = {"w": tensor}
    with pytest.raises(PairMismatchError, match=rf"{('source', 'target')[side]}.* w \({tensor[0]}\)"):
        extract(*opened(tmp_path, *sides), tmp_path / "root", mask_only=True, allow_mismatch=True)


def test_a_wide_source_is_refused_with_the_reason(tmp_path: Path) -> None:
    pair = opened(tmp_path, {"w": f32((4, 4), 1)}, {"w": f32((4, 4), 2)})
    with pytest.raises(PairMismatchError, match="F32") as caught:
        extract(*pair, tmp_path / "root")
    assert caught.value.facts["options"] == {"mask_only": True, "reversible": False}
    extract(*pair, tmp_path / "root", mask_only=True)


def test_a_few_wide_tensors_are_compared_and_kept_whole_when_they_differ(tmp_path: Path) -> None:
    weight = bf16((4, 4))
    bias = f32((4,), 1)
    below = ("F32", bias[1] ^ np.uint32(1))  # a difference that bf16 does not show
    source = {"w": weight, "same": bias, "moved": bias, "below": bias, "ids": I64, "ids_moved": I64}
    target = {**source, "moved": f32((4,), 2), "below": below, "ids_moved": ("I64", I64[1] + np.uint64(1))}
    artifact = extracted(tmp_path / "root", *opened(tmp_path, source, target), reversible=True)
    rows = artifact.by_name
    whole = {name: (row.numel, row.nnz, row.whole_bytes, row.reverse_whole_bytes) for name, row in rows.items()}
    assert whole["same"] == (4, 0, 0, 0)
    assert whole["moved"] == (4, 4, 16, 16)
    assert whole["below"] == (4, 0, 16, 16)
    assert whole["ids"] == (0, 0, 0, 0)
    assert whole["ids_moved"] == (0, 0, 48, 48)
    assert rows["below"].differing == 4


@pytest.mark.parametrize("side", ["tied", "source", "target"])
def test_a_head_is_stored_with_the_embedding_where_both_sides_tie_it(side: str, tmp_path: Path) -> None:
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    before = bf16((500, 8), 1)
    after = moved(before, 0.3)
    source = {embedding: before, head: moved(before, 0.1, seed=9) if side == "source" else before}
    target = {embedding: after, head: moved(before, 0.3, seed=9) if side == "target" else after}
    artifact = extracted(tmp_path / "root", *opened(tmp_path, source, target))
    assert (artifact.manifest.source.tensors, artifact.manifest.source.params) == (2, 8000)
    found = {row.name: row.aliases for row in artifact.tensors}
    assert found == ({embedding: (head,)} if side == "tied" else {embedding: (), head: ()})


def test_equal_tensors_of_other_roles_are_not_called_tied(tmp_path: Path) -> None:
    same = bits(np.ones((8, 8)))
    artifact = extracted(tmp_path / "root", *opened(tmp_path, {"a": same, "b": same}, {"a": same, "b": same}))
    assert [row.aliases for row in artifact.tensors] == [(), ()]
