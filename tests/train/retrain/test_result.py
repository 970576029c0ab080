"""What is written of a model, and what is found of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskreg.bucket import on_disk
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.errors import DataError, OutputExistsError, PairMismatchError, WrongCheckpointError
from maskreg.mask.algebra import Everything
from maskreg.mask.packed import TensorMask, pack
from maskreg.train import save_model
from maskreg.train.retrain.run import check_dtypes, load_model
from maskreg.train.retrain.verdict import verify
from tests.checkpoints import f32, make_checkpoint
from tests.flow.making import stored
from tests.live import models
from tests.train.making import make_model


@pytest.fixture
def opener() -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(open_checkpoint(path))


def experts(folder: Path) -> Path:
    """A mixture of experts, which checkpoints store one by one."""
    model: Any = models.qwen3_moe().to(torch.bfloat16)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("make", [make_model, experts])
@pytest.mark.parametrize("dtype", ["stored", "float32"])
def test_an_untrained_model_is_its_source_bit_for_bit(make: Any, dtype: str, tmp_path: Path, opener: Any) -> None:
    source: Checkpoint = opener(make(tmp_path / "source"))
    model = load_model(str(source.path), source, dtype)
    save_model(model, source.path, tmp_path / "out")
    assert stored(tmp_path / "out") == stored(on_disk(source.path, "a test"))
    for wrong, error in ((model, OutputExistsError), (torch.nn.Linear(2, 2), WrongCheckpointError)):
        with pytest.raises(error):
            save_model(wrong, source.path, tmp_path / "out")


def test_one_coordinate_of_an_expert(tmp_path: Path, opener: Any) -> None:
    source: Checkpoint = opener(experts(tmp_path / "source"))
    model = load_model(str(source.path), source, "stored")
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    with torch.no_grad():
        dict(model.named_parameters())["model.layers.1.mlp.experts.gate_up_proj"][2, 11 + 3, 5] += 1
    save_model(model, source.path, tmp_path / "out")
    result: Checkpoint = opener(tmp_path / "out")
    before, after = (side.read(name, 0, 264).reshape(11, 24) for side in (source, result))
    assert np.argwhere(before != after).tolist() == [[3, 5]]
    stored_before, stored_after = stored(on_disk(source.path, "a test")), stored(tmp_path / "out")
    assert {tensor for tensor, bits in stored_before.items() if bits != stored_after[tensor]} == {name}
    verdict = verify(source, result, Everything({n: info.shape for n, info in source.tensors.items()}))
    assert (verdict["visible"], verdict["density"]) == (1, 1.0)
    mask = {n: TensorMask(n, info.shape, pack(np.zeros(info.shape, np.bool_))) for n, info in source.tensors.items()}
    with pytest.raises(PairMismatchError, match=rf"1 coordinates .*{name} \(1\)") as told:
        verify(source, result, mask)
    assert told.value.tensors == (name,)


def test_a_change_that_no_rule_sees_is_seen_outside_the_mask(tmp_path: Path, opener: Any) -> None:
    dtype, bits = f32((40, 70))
    other = bits.copy()
    other[7, 7] ^= 1
    source: Checkpoint = opener(make_checkpoint(tmp_path / "source", {"a": (dtype, bits)}))
    result: Checkpoint = opener(make_checkpoint(tmp_path / "result", {"a": (dtype, other)}))
    assert verify(source, result, Everything({"a": (40, 70)}))["visible"] == 0
    with pytest.raises(PairMismatchError):
        verify(source, result, {})


@pytest.mark.parametrize(
    ("dtype", "fits", "narrow"),
    [
        (torch.float32, torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float32, torch.float16),
        (torch.float64, torch.float64, torch.float32),
    ],
)
def test_weights_are_not_trained_in_less_than_they_are_stored_in(
    dtype: torch.dtype, fits: torch.dtype, narrow: torch.dtype, tmp_path: Path, opener: Any
) -> None:
    source: Checkpoint = opener(make_model(tmp_path / "source", dtype=dtype))
    everything = Everything({n: info.shape for n, info in source.tensors.items()})
    model = load_model(str(source.path), source, "stored")
    assert next(model.parameters()).dtype == dtype
    for held in (dtype, fits):
        check_dtypes(model.to(held), source, everything)
    with pytest.raises(DataError, match=r"^model\.embed_tokens\.weight "):
        check_dtypes(model.to(narrow), source, everything)
