from __future__ import annotations

from maskreg.artifact.manifest import Group
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint import layer_of
from maskreg.reports.modules import grid_of


def row(name: str, numel: int = 10, nnz: int = 4) -> Tensor:
    return Tensor(name=name, role="other", layer=layer_of(name), numel=numel, nnz=nnz)


def test_experts_are_added_up_and_layers_are_in_order() -> None:
    rows = [row(f"model.layers.{layer}.mlp.experts.{e}.up_proj.weight", 10, e) for layer in (10, 2) for e in range(4)]
    found = grid_of([*rows, row("visual.blocks.1.attn.qkv.weight"), row("lm_head.weight", 7, 1), row("none", 0, 0)])
    assert found.layers == ("2", "10", "visual.1")
    assert found.modules == ("mlp.experts.*.up_proj", "attn.qkv")
    assert found.cells["10", "mlp.experts.*.up_proj"] == Group(numel=40, nnz=6)
    assert ("2", "attn.qkv") not in found.cells
    assert found.outside == {"lm_head.weight": Group(numel=7, nnz=1)}


def test_no_module_of_a_model_without_layers() -> None:
    found = grid_of([row("weight")])
    assert (found.layers, found.modules, found.cells) == ((), (), {})
