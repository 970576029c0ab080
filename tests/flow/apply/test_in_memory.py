from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskreg import apply_
from maskreg.artifact.reader import Artifact
from maskreg.errors import CorruptError, UsageError, WrongCheckpointError
from maskreg.flow.apply import in_memory as patching
from maskreg.parallel import ordered
from maskreg.store.file import FileStore
from tests.checkpoints import Tensor, bf16, f32, flip, moved
from tests.flow.making import BLOCK, LEAF, bits, edge_pair, extracted, opened

TORCH = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I64": torch.int64, "BOOL": torch.bool}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def live(tensors: dict[str, Tensor]) -> dict[str, torch.Tensor]:
    """A state dict with its own memory."""
    return {
        name: torch.from_numpy(codes.copy().view(SIGNED[codes.itemsize])).view(TORCH[dtype])
        for name, (dtype, codes) in tensors.items()
    }


def holds(state: dict[str, torch.Tensor], tensors: dict[str, Tensor]) -> bool:
    return all(
        state[name].detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() == codes.tobytes()
        for name, (_, codes) in tensors.items()
    )


def made(folder: Path, source: dict[str, Tensor], target: dict[str, Tensor], **options: Any) -> Artifact:
    return extracted(folder / "root", *opened(folder, source, target), **options)


@pytest.mark.parametrize(("jobs", "together"), [(1, 1), (3, 1), (2, 3)])
def test_every_edge_is_patched_in_place_and_back(
    jobs: int, together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(patching.AT_ONCE, "cpu", together)
    source, target = edge_pair()
    wide: dict[str, Tensor] = {
        "router": f32((9,), 1),
        "ids": ("I64", np.arange(6, dtype=np.uint64)),
        "flags": ("BOOL", np.array([0, 1, 1], np.uint8)),
        "long": bf16((BLOCK + LEAF + 3,), 1),
    }
    source |= wide
    target |= {name: (dtype, codes[::-1].copy()) for name, (dtype, codes) in wide.items()}
    artifact = made(tmp_path, source, target, reversible=True)
    state = live(source)
    places = {name: tensor.data_ptr() for name, tensor in state.items()}
    apply_(state, artifact, jobs=jobs)
    assert holds(state, target)
    assert places == {name: tensor.data_ptr() for name, tensor in state.items()}
    apply_(state, artifact, revert=True, jobs=jobs)
    assert holds(state, source)


def test_damage_anywhere_and_nothing_is_touched(tmp_path: Path) -> None:
    source, target = edge_pair()
    digest = made(tmp_path, source, target).digest
    flip(next((tmp_path / "root").rglob("data.zarr/delta/c/0")))
    state = live(source)
    with pytest.raises(CorruptError):
        apply_(state, Artifact.open(FileStore(tmp_path / "root"), digest))
    assert holds(state, source)


class Model(torch.nn.Module):
    """Embedding and head share memory; a weight is transposed; a buffer counts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(50, 8, dtype=torch.bfloat16)
        self.layer = torch.nn.Linear(8, 6, bias=False, dtype=torch.bfloat16)
        self.lm_head = torch.nn.Linear(8, 50, bias=False, dtype=torch.bfloat16)
        self.lm_head.weight = self.embed_tokens.weight
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed_tokens(ids)
        logits: torch.Tensor = self.lm_head(torch.tanh(self.layer(hidden)) @ self.layer.weight)
        return logits


def model_pair() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    source = {"embed_tokens.weight": bf16((50, 8), 1), "layer.weight": bf16((6, 8), 2)}
    return source, {name: moved(tensor, 0.4) for name, tensor in source.items()}


def loaded(source: dict[str, Tensor]) -> Model:
    model = Model()
    model.load_state_dict(live(source), strict=False)
    return model


class TestModule:
    def test_tied_weights_are_patched_once(self, tmp_path: Path) -> None:
        source, target = model_pair()
        model = loaded(source)
        apply_(model, made(tmp_path / "one", source, target))
        assert holds(dict(model.named_parameters()), target)
        assert model.lm_head.weight is model.embed_tokens.weight
        # Tied in the artifact too: a state dict can lack the head.
        for side in (source, target):
            side["lm_head.weight"] = side["embed_tokens.weight"]
        artifact = made(tmp_path / "two", source, target)
        assert artifact.by_name["lm_head.weight"].name == "embed_tokens.weight"
        model = loaded(source)
        apply_(model, artifact)
        assert holds(model.state_dict(), target)
        state = live(source)
        del state["lm_head.weight"]
        apply_(state, artifact)
        assert holds(state, {name: target[name] for name in state})

    def test_tied_here_but_not_in_the_artifact(self, tmp_path: Path) -> None:
        source, target = model_pair()
        source["lm_head.weight"] = source["embed_tokens.weight"]
        target["lm_head.weight"] = moved(source["lm_head.weight"], 0.4, seed=9)
        artifact = made(tmp_path, source, target)
        model = loaded(source)
        with pytest.raises(WrongCheckpointError, match=r"lm_head\.weight|embed_tokens\.weight"):
            apply_(model, artifact)
        assert holds(dict(model.named_parameters()), {n: source[n] for n, _ in model.named_parameters()})

    def test_training_goes_on_and_old_graphs_notice(self, tmp_path: Path) -> None:
        source, target = model_pair()
        artifact = made(tmp_path, source, target)
        model = loaded(source)
        before = model(torch.tensor([1, 2])).sum()
        apply_(model, artifact)
        assert model.layer.weight.requires_grad
        assert model.layer.weight.is_leaf
        with pytest.raises(RuntimeError, match="inplace"):
            before.backward()
        model(torch.tensor([1, 2])).sum().backward()
        assert model.layer.weight.grad is not None


def test_what_is_not_contiguous_is_patched_where_it_lies(tmp_path: Path) -> None:
    source = {"t": bf16((30, 20), 1), "s": bf16((2 * LEAF,), 2), "u": bf16((7, 9), 3)}
    target = {name: moved(tensor, 0.3) for name, tensor in source.items()}
    target["u"] = source["u"]
    artifact = made(tmp_path, source, target)
    state = live(source)
    wide = torch.zeros(4 * LEAF, dtype=torch.bfloat16)
    wide[::2] = state["s"]
    strided = {"t": state["t"].t().contiguous().t(), "s": wide[::2], "u": state["u"].t().contiguous().t()}
    assert not strided["t"].is_contiguous()
    apply_(strided, artifact)
    assert holds(strided, target)
    assert not wide[1::2].any()


class TestOverlap:
    """A fused weight beside views of it."""

    @pytest.mark.parametrize("column", [False, True], ids=["rows", "columns"])
    @pytest.mark.parametrize("changes", ["both", "fused", "part"])
    def test_a_view_of_a_fused_weight_is_refused_and_nothing_is_touched(
        self, column: bool, changes: str, tmp_path: Path
    ) -> None:
        fused = bf16((12, 8), 1)
        fused_after = fused[1].copy()
        part = np.s_[:, 2:4] if column else np.s_[4:8]
        fused_after[part] ^= 1
        source = {"fused": fused, "part": ("BF16", fused[1][part].copy())}
        target = {
            "fused": ("BF16", fused_after) if changes != "part" else fused,
            "part": ("BF16", fused_after[part].copy()) if changes != "fused" else source["part"],
        }
        state = {"fused": live(source)["fused"]}
        state["part"] = state["fused"][part]
        with pytest.raises(UsageError, match=r"fused.* part|part.* fused"):
            apply_(state, made(tmp_path, source, target))
        assert holds(state, source)

    def test_it_is_seen_across_storages(self, tmp_path: Path) -> None:
        source, target = {"a": bf16((6,), 1), "b": bf16((6,), 1)}, {"a": bf16((6,), 2), "b": bf16((6,), 3)}
        codes = np.concatenate([source["a"][1], source["a"][1][4:]])
        source["b"] = bits(codes[2:])
        state = {
            name: torch.from_numpy(codes[start : start + 6].view(np.int16)).view(torch.bfloat16)
            for name, start in (("a", 0), ("b", 2))
        }
        with pytest.raises(UsageError, match=r"\ba\b.*\bb\b"):
            apply_(state, made(tmp_path, source, target))
        assert holds(state, source)

    def test_an_expanded_tensor_is_refused(self, tmp_path: Path) -> None:
        source, target = {"w": bits([1, 1, 1])}, {"w": bits([1, 2, 3])}
        state = {"w": live({"w": bits([1])})["w"].expand(3)}
        with pytest.raises(UsageError, match=r"\bw\b"):
            apply_(state, made(tmp_path, source, target))
        assert holds(state, source)

    def test_what_stays_may_overlap(self, tmp_path: Path) -> None:
        source = {"a": bf16((6,), 1), "w": bf16((4,), 2)}
        source["b"] = bits(source["a"][1][2:])
        source["c"] = bits(np.repeat(source["a"][1][:1], 4))
        target = {**source, "w": bf16((4,), 3)}
        state = live(source)
        state["b"], state["c"] = state["a"][2:], state["a"][:1].expand(4)
        apply_(state, made(tmp_path, source, target))
        assert holds(state, target)


def test_what_changes_between_check_and_write_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = {"w": bf16((9,), 1)}, {"w": bf16((9,), 2)}
    artifact = made(tmp_path, source, target)
    state = live(source)

    def then_another_writer_writes(*args: Any, **options: Any) -> Iterator[Any]:
        yield from ordered(*args, **options)
        state["w"][3] = 7.0

    monkeypatch.setattr(patching, "ordered", then_another_writer_writes)
    with pytest.raises(WrongCheckpointError, check=lambda error: error.facts["half_patched"] is True):
        apply_(state, artifact)
    codes = source["w"][1].copy()
    codes[3] = 0x40E0
    assert holds(state, {"w": bits(codes)})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param({"w": bf16((5, 4))}, "changes dtype or shape of tensor w", id="reshaped"),
        pytest.param({}, "removes tensor w", id="removed"),
        pytest.param({"w": bf16((4, 4)), "new": bf16((2,))}, "adds tensor new", id="added"),
    ],
)
def test_what_cannot_be_done_in_place_is_refused(target: dict[str, Tensor], message: str, tmp_path: Path) -> None:
    other, source = {"a": bf16((4,), 5)}, {"w": bf16((4, 4))}
    artifact = made(tmp_path, other | source, {"a": bf16((4,), 6)} | target, allow_mismatch=True)
    state = live(other | source)
    with pytest.raises(UsageError, match=message):
        apply_(state, artifact)
    assert holds(state, other | source)


class TestForm:
    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        return made(tmp_path, {"w": bits([1, 2, 3])}, {"w": bits([1, 2, 4])})

    @pytest.mark.parametrize(
        ("name", "tensor", "message"),
        [
            ("w", torch.zeros(3), "F32 in this model, BF16 in the artifact"),
            ("w", torch.zeros(4, dtype=torch.bfloat16), r"shape \[4\] in this model, \[3\]"),
            ("w", torch.zeros(3, dtype=torch.bfloat16, device="meta"), "meta device"),
            ("w", torch.zeros(3, dtype=torch.bfloat16).to_sparse(), r"tensor w: a sparse tensor \(torch.sparse_coo\)"),
            ("v", torch.zeros(3, dtype=torch.bfloat16), "tensor w: missing in this model"),
        ],
    )
    def test_another_form_is_refused(self, name: str, tensor: torch.Tensor, message: str, artifact: Artifact) -> None:
        with pytest.raises(WrongCheckpointError, match=message) as caught:
            apply_({name: tensor}, artifact)
        assert caught.value.hint
