"""Blocks decoded by Triton's kernels: on a GPU where there is one, and by Triton's interpreter anywhere."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import torch

from maskreg.codec import get_codec
from maskreg.codec.layout import Layout
from maskreg.codec.sparse import SparseLayout
from maskreg.codec.step2 import _triton_decoders
from maskreg.extras import install_command
from tests.codec.samples import samples
from tests.compiling import Recorder, compiled, printed
from tests.machines import DEVICES


@pytest.fixture(scope="module", params=DEVICES)
def outcome(request: pytest.FixtureRequest) -> Any:
    """What :mod:`tests.codec.launching` prints, once per device."""
    return printed("tests.codec.launching", device=request.param)


def test_blocks_of_every_mode_in_one_launch(outcome: Any) -> None:
    assert [name for name, came_out in outcome["together"].items() if not came_out] == []


def test_the_smallest_blocks_and_the_last_lanes(outcome: Any) -> None:
    assert set(outcome["alone"].values()) == {True}


def test_damaged_blocks_decode_as_on_the_cpu(outcome: Any) -> None:
    tally = outcome["damaged"]
    assert tally["different"] == 0
    assert min(tally["refused before a launch"], tally["refused"], tally["same"]) > 3


def test_damaged_sparse_blocks_decode_as_on_the_cpu(outcome: Any) -> None:
    tally = outcome["damaged sparse"]
    assert tally["different"] == 0
    assert tally["refused"] > 1


def test_the_sparse_kernel_compiles_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from maskreg.codec import triton_decode

    kernel, recorder = triton_decode.movers_kernel, Recorder()
    monkeypatch.setattr(triton_decode, "movers_kernel", recorder)
    sample = samples()["sparse, several sub-blocks"]
    triton_decode.launch_sparse([torch.from_numpy(sample.source.view(np.int16))], [SparseLayout(sample.block)])
    assert compiled(kernel, recorder, 80)


@pytest.mark.parametrize("name", ["classify_kernel", "decode_kernel"])
def test_the_kernels_compile_where_there_is_no_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from maskreg.codec import triton_decode

    kernel = getattr(triton_decode, name)
    recorders = {"classify_kernel": Recorder(), "decode_kernel": Recorder()}
    for each, recorder in recorders.items():
        monkeypatch.setattr(triton_decode, each, recorder)
    sample = samples()["factors"]
    triton_decode.launch([torch.from_numpy(sample.source.view(np.int16))], [Layout(sample.block)])
    assert compiled(kernel, recorders[name], 80)


def test_without_triton_the_cpu_decodes_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "maskreg.codec.triton_decode", raising=False)
    blocks = [samples()[name] for name in ("factors", "raw", "same", "plain")]
    contexts = [torch.from_numpy(sample.source.view(np.int16)) for sample in blocks]
    step2 = get_codec("step2")
    _triton_decoders.cache_clear()
    with pytest.warns(UserWarning, match="decoded on the CPU.*" + re.escape(install_command("gpu"))):
        values = step2.decode_tensors(contexts, [sample.block for sample in blocks])
    for sample, got in zip(blocks, values, strict=True):
        assert np.array_equal(got.numpy().view(np.uint16), sample.target)
    assert step2.decode_tensors(contexts[:1], [blocks[0].block])[0].equal(values[0])
    _triton_decoders.cache_clear()
