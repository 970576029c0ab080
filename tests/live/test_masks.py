"""Masks of checkpoints in models of transformers, against the weights that it loads from both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from maskreg import apply_
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import UsageError, WrongCheckpointError
from maskreg.live.masks import parameter_masks
from maskreg.mask.packed import Mask, TensorMask, pack
from tests.checkpoints import write_safetensors
from tests.flow.making import extracted
from tests.live import models

pytestmark = pytest.mark.usefixtures("quiet")

Make = Callable[[], torch.nn.Module]

WIDTHS = {2: torch.int16, 4: torch.int32}


def codes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(WIDTHS[tensor.element_size()])


def perturb(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            bits = codes(p)
            chosen = torch.rand(p.shape, generator=generator) < 0.3
            p.copy_(torch.where(chosen, bits ^ 1, bits).view(p.dtype))


def transposed(directory: Path) -> None:
    """Write stacked experts with their last two dimensions the other way round."""
    checkpoint = open_checkpoint(directory)
    tensors: dict[str, Any] = {}
    for name, info in checkpoint.tensors.items():
        bits = checkpoint.read(name, 0, info.numel).view(np.uint16).reshape(info.shape)
        tensors[name] = (info.dtype, bits.swapaxes(1, 2).copy() if ".experts." in name else bits.copy())
    write_safetensors(directory / "model.safetensors", tensors, {"format": "pt"})


class Pair:
    """One model before and after, as checkpoints and as an artifact."""

    def __init__(self, make: Make, directory: Path, rewrite: Callable[[Path], None] | None = None) -> None:
        torch.manual_seed(0)
        model: Any = make().to(torch.bfloat16)
        self._kind = type(model)
        self._paths = directory / "source", directory / "target"
        for path in self._paths:
            model.save_pretrained(path)
            if rewrite:
                rewrite(path)
            perturb(model)
        pair = open_checkpoint(self._paths[0]), open_checkpoint(self._paths[1])
        self.artifact: Artifact = extracted(directory / "root", *pair, reversible=True)
        self.mask: Mask = self.artifact.mask
        self.source, self.target = self.load(0), self.load(1)

    def load(self, side: int) -> torch.nn.Module:
        model: torch.nn.Module = self._kind.from_pretrained(self._paths[side], dtype=torch.bfloat16)
        return model

    def check(self, model: torch.nn.Module | None, named: dict[str, torch.Tensor]) -> int:
        """Compare each mask with what differs between the loaded models; returns how many coordinates it has."""
        before, after = (dict(side.named_parameters()) for side in (self.source, self.target))
        found = dict(parameter_masks(named, self.mask, model))
        assert list(found) == list(named)
        for (name, one), own in zip(found.items(), before, strict=True):
            assert one.shape == tuple(named[name].shape)
            np.testing.assert_array_equal(one.to_bool(), (codes(before[own]) != codes(after[own])).numpy(), name)
        return sum(one.nnz for one in found.values())


ALL = [
    pytest.param(models.qwen3, None, id="tied"),
    pytest.param(models.qwen3_moe, None, id="experts"),
    pytest.param(models.qwen2_5_vl, None, id="visual"),
    pytest.param(models.gpt2, None, id="conv1d"),
    pytest.param(models.qwen3_vl_moe, None, id="stacked"),
    pytest.param(models.qwen3_vl_moe, transposed, id="transposed"),
    pytest.param(models.dinov2, None, id="cut"),
]


@pytest.mark.parametrize(("make", "rewrite"), ALL)
def test_each_parameter_has_the_mask_of_what_differs_in_it_and_is_patched_there_and_back(
    make: Make, rewrite: Callable[[Path], None] | None, tmp_path: Path
) -> None:
    pair = Pair(make, tmp_path, rewrite)
    model = pair.source
    assert pair.check(model, dict(model.named_parameters())) > 1000
    compiled: Any = torch.compile(torch.nn.DataParallel(model), backend="eager")
    pair.check(compiled, dict(compiled.named_parameters()))
    if make is models.dinov2:  # has in two tensors what its checkpoints have in one
        return
    patched = pair.load(0)
    for revert, wanted in ((False, pair.target), (True, model)):
        apply_(patched, pair.artifact, revert=revert)
        for (name, p), other in zip(patched.named_parameters(), wanted.parameters(), strict=True):
            assert torch.equal(codes(p), codes(other)), name


def test_a_tensor_kept_in_parts_cannot_be_patched(tmp_path: Path) -> None:
    pair = Pair(models.dinov2, tmp_path)
    model = pair.load(0)
    with pytest.raises(WrongCheckpointError, match=r"weights_in\.\w+: .*gate_proj"):
        apply_(model, pair.artifact)
    for p, other in zip(model.parameters(), pair.source.parameters(), strict=True):
        assert torch.equal(codes(p), codes(other))


def test_experts_that_may_lie_two_ways_need_the_model(tmp_path: Path) -> None:
    wide = {"experts.0.down_proj.weight": (5, 5), "experts.1.down_proj.weight": (5, 5)}
    mask = {f"mlp.{name}": TensorMask(f"mlp.{name}", shape, pack(np.ones(shape, bool))) for name, shape in wide.items()}
    with pytest.raises(WrongCheckpointError, match=r"experts.0.down_proj.weight: "):
        dict(parameter_masks({"mlp.experts.down_proj": torch.zeros(2, 5, 5)}, mask))


def test_within_another_module_and_without_its_head(tmp_path: Path) -> None:
    pair = Pair(models.qwen3_moe, tmp_path)
    outer = torch.nn.ModuleDict({"student": pair.source})
    pair.check(outer, dict(outer.named_parameters()))
    base: Any = pair.source.get_submodule("model")
    found = dict(
        parameter_masks(dict(base.named_parameters()), {n: m for n, m in pair.mask.items() if "head" not in n}, base)
    )
    assert found["layers.0.mlp.experts.gate_up_proj"].nnz > 0


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_layers_under_peft_and_not_its_adapters(tmp_path: Path) -> None:
    pair = Pair(models.qwen3, tmp_path)
    wrapped: Any = get_peft_model(pair.source, LoraConfig(target_modules=["q_proj"], r=2))
    named = dict(wrapped.named_parameters())
    own = {name: p for name, p in named.items() if "lora" not in name}
    assert any(".base_layer." in name for name in own)
    found = dict(parameter_masks(own, pair.mask, wrapped))
    name = "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight"
    assert np.array_equal(found[name].packed, pair.mask["model.layers.0.self_attn.q_proj.weight"].packed)
    with pytest.raises(UsageError, match=r"lora_A.* 1 more") as caught:
        parameter_masks(named, pair.mask, wrapped)
    assert "adapters" in caught.value.hint


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class TestTied:
    def masks(self, *names: str, density: float = 0.5) -> dict[str, TensorMask]:
        ones = pack(np.random.default_rng(0).random((97, 24)) < density)
        return {name: TensorMask(name, (97, 24), ones) for name in names}

    @pytest.mark.parametrize("names", [[EMBEDDING], [HEAD], [EMBEDDING, HEAD]])
    def test_one_weight_has_one_mask_of_either_name(self, names: list[str]) -> None:
        model = models.qwen3()
        trained = {EMBEDDING: model.get_parameter(EMBEDDING)}
        mask = self.masks(*names)
        [(name, one)] = parameter_masks(trained, mask, model)
        assert name == EMBEDDING
        assert np.array_equal(one.packed, mask[names[0]].packed)
        with pytest.raises(UsageError, match=f"{EMBEDDING}.*{HEAD}|{HEAD}.*{EMBEDDING}"):
            list(parameter_masks(trained, self.masks(EMBEDDING) | self.masks(HEAD, density=0.4), model))

    def test_an_untied_head_needs_a_mask_of_its_own(self) -> None:
        model = models.qwen3(tie_word_embeddings=False)
        trained = {name: p for name, p in model.named_parameters() if p.shape == (97, 24)}
        with pytest.raises(UsageError, match=r" lm_head\.weight,"):
            parameter_masks(trained, self.masks(EMBEDDING), model)
        both = dict(parameter_masks(trained, self.masks(EMBEDDING, HEAD), model))
        assert list(both) == list(trained) == [EMBEDDING, HEAD]


def full(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorMask]:
    """Masks of all coordinates."""
    return {name: TensorMask(name, shape, pack(np.ones(shape, bool))) for name, shape in shapes.items()}


def stacked(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.named_parameters()}


def alone(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """The same shapes with experts one by one."""
    shapes = {name: shape for name, shape in stacked(model).items() if ".experts." not in name}
    for at in (f"model.layers.{layer}.mlp.experts.{expert}" for layer in range(2) for expert in range(12)):
        shapes |= {f"{at}.gate_proj.weight": (11, 24), f"{at}.up_proj.weight": (11, 24)}
        shapes[f"{at}.down_proj.weight"] = (24, 11)
    return shapes


EXPERT = "model.layers.0.mlp.experts.7.gate_proj.weight"
DOWN = "model.layers.0.mlp.experts.down_proj"
REFUSED: dict[str, tuple[Make, Callable[[torch.nn.Module], dict[str, tuple[int, ...]]], str]] = {
    "a name too many": (models.qwen3, lambda model: stacked(model) | {"extra.weight": (1,)}, "extra.weight"),
    "another shape": (models.qwen3, lambda model: stacked(model) | {EMBEDDING: (98, 24)}, EMBEDDING),
    "an expert of another shape": (models.qwen3_moe, lambda model: alone(model) | {EXPERT: (24, 11)}, EXPERT),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mask_that_does_not_fit_is_refused_by_name(case: str) -> None:
    make, shapes, name = REFUSED[case]
    model = make()
    with pytest.raises(WrongCheckpointError) as caught:
        list(parameter_masks(dict(model.named_parameters()), full(shapes(model)), model))
    assert caught.value.tensor == name


@pytest.mark.parametrize("part", ["down_proj", "up_proj"])
@pytest.mark.parametrize("gone", [0, 5, 11])
def test_an_expert_that_is_not_there_is_noticed(part: str, gone: int) -> None:
    model = models.qwen3_moe()
    mask = full(alone(model))
    list(parameter_masks(dict(model.named_parameters()), mask, model))
    del mask[f"model.layers.1.mlp.experts.{gone}.{part}.weight"]
    with pytest.raises(WrongCheckpointError, match=r" model\.layers\.1\.mlp\.experts\.\d+\.\w+\.weight: "):
        list(parameter_masks(dict(model.named_parameters()), mask, model))


def test_what_is_twice_in_the_mask_or_in_the_model_is_refused() -> None:
    model = models.qwen3_moe()
    mask = full(alone(model)) | full(stacked(model))
    mask[DOWN].packed[0] = 0
    with pytest.raises(UsageError, match=DOWN):
        list(parameter_masks(dict(model.named_parameters()), mask, model))
    both = torch.nn.ModuleDict({"module": torch.nn.Linear(3, 2), "_orig_mod": torch.nn.Linear(3, 2)})
    with pytest.raises(WrongCheckpointError, match=r"module\.\w+ or _orig_mod"):
        parameter_masks(dict(both.named_parameters()), full({"weight": (2, 3), "bias": (2,)}), both)
