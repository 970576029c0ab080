"""Back to the source, and from one target to another, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import maskreg
from maskreg import apply_
from maskreg.artifact.reader import Artifact
from maskreg.errors import AlreadyAppliedError, PairMismatchError, PartAbsentError, UsageError, WrongCheckpointError
from maskreg.flow.apply.in_memory import patch_
from maskreg.update.route import switching
from tests.checkpoints import Tensor, bf16, f32, moved
from tests.flow.apply.test_in_memory import holds, live, made
from tests.flow.making import LEAF

Tensors = dict[str, Tensor]


def source_of() -> Tensors:
    return {
        "a": bf16((64, 70), 1),
        "b": bf16((LEAF + 3,), 2),
        "kept": bf16((9, 9), 3),
        "by_first": bf16((40,), 4),
        "by_second": bf16((40,), 5),
        "router": f32((9,), 6),
    }


def target_of(source: Tensors, seed: int) -> Tensors:
    alone = "by_first" if seed == 1 else "by_second"
    changed = {name: moved(source[name], 0.3, seed) for name in ("a", "b", alone)}
    return {**source, **changed, "router": f32((9,), 6 + seed)}


class Both:
    """Two updates of one source."""

    def __init__(self, directory: Path) -> None:
        self.source = source_of()
        self.targets = target_of(self.source, 1), target_of(self.source, 2)
        self.first, self.second = (
            made(directory / str(n), self.source, target, reversible=True) for n, target in enumerate(self.targets)
        )


def switch_(state: dict[str, torch.Tensor], before: Artifact, after: Artifact, *, jobs: int | None = None) -> None:
    patch_(state, lambda: switching(before, after), jobs=jobs)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("both"))


def test_a_model_goes_from_one_target_to_another_and_back(both: Both) -> None:
    state = live(both.source)
    places = {name: tensor.data_ptr() for name, tensor in state.items()}
    apply_(state, both.first)
    switch_(state, both.first, both.second)
    assert holds(state, both.targets[1])
    switch_(state, both.second, both.first, jobs=1)
    assert holds(state, both.targets[0])
    maskreg.apply_(state, both.first, revert=True)
    assert holds(state, both.source)
    assert places == {name: tensor.data_ptr() for name, tensor in state.items()}


@pytest.mark.parametrize("name", ["a", "kept", "by_first", "by_second", "router"])
def test_one_wrong_bit_and_nothing_is_touched(name: str, both: Both) -> None:
    dtype, codes = both.targets[0][name]
    codes = codes.copy()
    codes.reshape(-1)[codes.size // 2] ^= 1
    wrong = {**both.targets[0], name: (dtype, codes)}
    state = live(wrong)
    with pytest.raises(WrongCheckpointError) as caught:
        switch_(state, both.first, both.second)
    assert caught.value.tensor == name
    assert "with root" in caught.value.hint
    assert holds(state, wrong)


def test_what_the_model_is_already_is_said(both: Both) -> None:
    source, first, second = (live(each) for each in (both.source, *both.targets))
    with pytest.raises(AlreadyAppliedError, check=lambda error: error.tensor == "a"):
        apply_(first, both.first)
    with pytest.raises(AlreadyAppliedError):
        apply_(source, both.first, revert=True)
    digests = both.first.digest.short, both.second.digest.short
    with pytest.raises(AlreadyAppliedError, match=digests[1]):
        switch_(second, both.first, both.second)
    with pytest.raises(WrongCheckpointError, match=digests[0]) as told:
        switch_(source, both.first, both.second)
    assert not isinstance(told.value, AlreadyAppliedError)
    assert "apply_" in told.value.hint
    for state, expected in ((source, both.source), (first, both.targets[0]), (second, both.targets[1])):
        assert holds(state, expected)


def test_updates_of_different_sources_are_refused_with_the_first_tensor(both: Both, tmp_path: Path) -> None:
    source = {**both.source, "kept": bf16((9, 9), 30)}
    foreign = made(tmp_path, source, target_of(source, 2), reversible=True)
    state = live(both.targets[0])
    with pytest.raises(PairMismatchError) as caught:
        switch_(state, both.first, foreign)
    assert caught.value.tensors == ("kept",)
    assert holds(state, both.targets[0])


def test_a_switch_needs_the_reverse_of_the_first_alone(both: Both, tmp_path: Path) -> None:
    one_way = made(tmp_path, both.source, both.targets[1])
    state = live(both.targets[0])
    switch_(state, both.first, one_way)
    assert holds(state, both.targets[1])
    with pytest.raises(PartAbsentError) as caught:
        switch_(state, one_way, both.first)
    assert caught.value.facts["absent"] == "reverse"
    assert holds(state, both.targets[1])


def test_a_switch_to_the_same_artifact_is_refused(both: Both) -> None:
    with pytest.raises(UsageError, match=both.first.digest.short):
        switch_(live(both.targets[0]), both.first, both.first)


class Wrapped(torch.nn.Module):
    """A model within another module."""

    def __init__(self, **parameters: torch.Tensor) -> None:
        super().__init__()
        self.inner = torch.nn.Module()
        for name, tensor in parameters.items():
            self.inner.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))


class TestRefusals:
    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        return made(tmp_path, {"inner.w": bf16((6, 4), 1)}, {"inner.w": bf16((6, 4), 2)})

    def test_a_quantized_tensor_is_named_by_what_the_layer_holds_or_by_its_class(self, artifact: Artifact) -> None:
        kind = type("Params4bit", (torch.nn.Parameter,), {"__module__": "bitsandbytes.nn.modules"})
        of_class = Wrapped()
        of_class.inner.register_parameter("w", kind(torch.zeros(12, 1, dtype=torch.uint8), requires_grad=False))
        codes = torch.zeros(6, 4, dtype=torch.float8_e4m3fn)
        for model, by in (
            (Wrapped(qweight=torch.zeros(3, dtype=torch.uint8)), "inner.qweight"),
            (Wrapped(weight_packed=torch.zeros(3, dtype=torch.uint8)), "inner.weight_packed"),
            (Wrapped(w=codes, weight_scale_inv=torch.ones(1)), "inner.weight_scale_inv"),
            (of_class, "Params4bit"),
        ):
            with pytest.raises(WrongCheckpointError, match=rf"inner\.w: .*{by}"):
                apply_(model, artifact)

    def test_a_tensor_that_computes_its_values_is_refused(self, artifact: Artifact) -> None:
        from torch.testing._internal.two_tensor import TwoTensor

        pair: Any = TwoTensor
        two = pair(*(torch.zeros(6, 4, dtype=torch.bfloat16) for _ in range(2)))
        with pytest.raises(WrongCheckpointError, match="TwoTensor"):
            apply_({"inner.w": two}, artifact)

    @pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
    def test_fsdp1_is_refused(self, artifact: Artifact) -> None:
        dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        wrapper: Any = FullyShardedDataParallel
        with pytest.raises(UsageError, match=r"inner .*FullyShardedDataParallel") as caught:
            model = Wrapped(w=torch.zeros(6, 4, dtype=torch.bfloat16))
            model.inner = wrapper(model.inner, device_id=torch.device("cpu"), use_orig_params=True)
            apply_(model, artifact)
        dist.destroy_process_group()
        assert "fully_shard" in caught.value.hint

    def test_zero_3_is_refused(self, artifact: Artifact) -> None:
        model = Wrapped(w=torch.zeros(0, dtype=torch.bfloat16))
        for name in ("ds_id", "ds_status"):
            setattr(model.inner.w, name, 1)
        with pytest.raises(UsageError, match=r"inner\.w .*ZeRO-3"):
            apply_(model, artifact)
