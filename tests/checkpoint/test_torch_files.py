"""State dicts of torch.save, as people and trainers write them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tracemalloc
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskreg
from maskreg.bucket import BucketPath
from maskreg.checkpoint import dcp, open_checkpoint
from maskreg.checkpoint.torch_files import open_path, open_ranks
from maskreg.errors import ConfigError, FormatError, LimitError, MaskregError, NotFoundError, UsageError
from maskreg.settings import StoreOptions
from tests.checkpoint.saving import as_torch, save_dcp, save_torch
from tests.checkpoints import Tensor, bf16, llama_tensors, make_pair
from tests.limited import limited


def saved(path: Path, value: object, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def bits(path: Path) -> dict[str, bytes]:
    with open_checkpoint(path) as checkpoint:
        return {name: checkpoint.read(name, 0, info.numel).tobytes() for name, info in checkpoint.tensors.items()}


def expected(state: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for name, tensor in state.items()}


def test_tensors_of_every_dtype(tmp_path: Path) -> None:
    names = "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 float8_e4m3fn"
    state = {
        name: torch.arange(1, 7).to(getattr(torch, name)).reshape(2, 3)
        if "8_e" not in name
        else torch.arange(1.0, 7.0).to(getattr(torch, name)).reshape(2, 3)
        for name in names.split()
    }
    assert bits(saved(tmp_path / "x.pt", state)) == expected(state)


def test_views_are_read_as_they_look(tmp_path: Path) -> None:
    whole = torch.arange(6 * 70 * 50, dtype=torch.int32).reshape(6, 70, 50)
    state = {
        "part": whole[2:4],
        "transposed": whole[0].t(),
        "permuted": whole.permute(2, 0, 1),
        "every second": whole[:, ::2, 1::2],
        "column": whole[1, :, 3],
        "number": whole[3, 4, 5],
        "empty": whole[:0],
        "shape of ones": whole[:1, :1, :7].permute(2, 0, 1),
        "parameter": torch.nn.Parameter(whole[5].t().float()),
    }
    path = saved(tmp_path / "x.pt", state)
    plain = {name: tensor.detach() for name, tensor in state.items()}
    assert bits(path) == expected(plain)
    rng = np.random.default_rng(0)
    with open_checkpoint(path) as checkpoint:
        for name, tensor in plain.items():
            flat = tensor.contiguous().reshape(-1).view(torch.int32).numpy().view("<u4")
            for start, stop in np.sort(rng.integers(0, flat.size + 1, (30, 2))).tolist():
                assert np.array_equal(checkpoint.read(name, start, stop), flat[start:stop]), name


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model": state, "optimizer": {"state": {0: {"exp_avg": next(iter(state.values()))}}}, "step": 3},
        lambda state: {"state_dict": state, "epoch": 7},
        lambda state: {"app": {"model": state, "optim": {"param_groups": [{"lr": 1e-3}]}}},
        lambda state: {"module": {f"module.{name}": tensor for name, tensor in state.items()}},
        lambda state: {f"_orig_mod.{name}": tensor for name, tensor in state.items()},
        lambda state: {**state, "step": 3, "layers.0._extra_state": None},
    ],
)
def test_state_dicts_as_people_wrap_them(tmp_path: Path, wrap: Any) -> None:
    source, target = make_pair(tmp_path / "pair", words=300)
    with open_checkpoint(target) as checkpoint:
        state = {
            name: ("BF16", checkpoint.read(name, 0, info.numel).reshape(info.shape))
            for name, info in checkpoint.tensors.items()
        }
    digest = maskreg.extract(source, target).digest
    (tmp_path / "run").mkdir()
    for file in target.glob("*.json"):
        shutil.copy(file, tmp_path / "run")
    saved(tmp_path / "run" / "last.pt", wrap(as_torch(state)))
    (tmp_path / "run" / "optimizer.pt").write_bytes(b"never opened")
    assert maskreg.extract(source, tmp_path / "run").digest == digest


def test_versions_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"a": torch.arange(6, dtype=torch.int16).reshape(2, 3).t(), "b": torch.nn.Parameter(torch.ones(2))}
    path = saved(tmp_path / "x.pt", state)
    plain = {name: tensor.detach() for name, tensor in state.items()}
    monkeypatch.setattr(torch, "__version__", "2.7.1")
    assert bits(path) == expected(plain)
    monkeypatch.setattr(torch, "__version__", "2.6.0")
    with pytest.raises(ConfigError, match=r"torch 2\.6\.0") as caught:
        open_checkpoint(path)
    assert caught.value.hint == "pip install --upgrade torch"


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_torch(tmp_path, {"model.a.weight": bf16((6, 4))})
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError) as caught:
        open_checkpoint(path)
    assert "[torch]" in caught.value.hint


@pytest.mark.parametrize("name", ["run/x.bin", "run"])
def test_from_a_bucket_the_next_step_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = BucketPath.of(f"s3://bucket/{name}", StoreOptions())
    for read in (open_path, open_ranks, dcp.open_path):
        with pytest.raises(UsageError) as caught:
            read(path)
        assert f"aws s3 cp --recursive {path}/ " in caught.value.hint


def test_what_is_left_out_and_renamed_is_said(tmp_path: Path) -> None:
    w = torch.ones(4, 4)
    beside = {"optimizer": {"state": {0: {"m": w}}}, "ema": {"w": w}, "step": 3}
    path = saved(tmp_path / "x.pt", {"model": {"_orig_mod.w": w, "note": "x"}, **beside})
    with open_checkpoint(path) as checkpoint:
        for said, remark in zip(("'_orig_mod.w'", "optimizer (1 ", "'note'"), checkpoint.remarks, strict=True):
            assert said in remark


def test_shards_with_an_index(tmp_path: Path) -> None:
    tensors = llama_tensors(words=300)
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"pytorch_model-{number:05}-of-00002.bin"
        save_torch(tmp_path, {name: tensors[name] for name in part}, file)
        weight_map |= dict.fromkeys(part, file)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert bits(tmp_path) == {name: stored.tobytes() for name, (_, stored) in tensors.items()}
    for wrong, error, fault in (
        (weight_map | {names[0]: file}, FormatError, "pytorch_model.bin.index.json: tensor .* is listed in"),
        ({"w": "../x.bin"}, FormatError, "not the plain name of a shard"),
        ({"w": "gone.bin"}, NotFoundError, "gone.bin: a file of the checkpoint is missing"),
    ):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(error, match=fault):
            open_checkpoint(tmp_path)


# -- what must be refused


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({}, "no weights in it"),
        ([1, 2], "no weights in it"),
        ("tensor", "a tensor without a name"),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}}, "dictionaries more than 8 deep"),
        ({"args": Namespace(lr=1)}, "names argparse.Namespace, which is neither a tensor nor a plain value"),
        ({"left": {"w": "tensor"}, "right": {"w": "tensor"}}, "2 state dicts in it (left, right)"),
        ({"w": "complex"}, "has the dtype torch.complex128"),
        ({"w": "negated"}, "a view whose values are still to be computed"),
        ({"w": "expanded"}, "lies outside its storage"),
        ({"w\n": "tensor"}, "control characters"),
    ],
)
def test_a_state_dict_that_is_none_says_why(tmp_path: Path, value: Any, fault: str) -> None:
    tensors = {
        "tensor": torch.ones(2),
        "complex": torch.ones(2, dtype=torch.complex128),
        "negated": torch.ones(2, dtype=torch.complex64).conj().imag,
        "expanded": torch.ones(1).expand(1000),
    }

    def filled(item: Any) -> Any:
        return (
            {key: filled(part) for key, part in item.items()}
            if isinstance(item, dict)
            else tensors.get(str(item), item)
        )

    path = saved(tmp_path / "x.pt", filled(value))
    with pytest.raises(FormatError) as caught:
        open_checkpoint(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert fault in caught.value.message


def test_nothing_of_a_pickle_runs(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.ones(2), "attack": Attack(tmp_path / "ran")})
    with pytest.raises(FormatError, match=r"posix\.system") as caught:
        open_checkpoint(path)
    assert "torch.save(model.state_dict(), PATH)" in caught.value.hint
    assert not (tmp_path / "ran").exists()


def test_a_crash_is_no_answer(tmp_path: Path) -> None:
    """The hash of a tuple that is nested too deep overflows the stack of a process."""
    path = save_torch(tmp_path, {"model.a.weight": bf16((6, 4))}) / "pytorch_model.bin"
    bomb = b"\x80\x02})" + b"\x85" * 300_000 + b"Ns."
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "x.bin", "w") as new:
        for name in old.namelist():
            new.writestr(name, bomb if name.endswith("data.pkl") else old.read(name))
    with pytest.raises(FormatError, match=r"\b100\b"):
        open_checkpoint(tmp_path / "x.bin")


def test_another_protocol_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.ones(2)}, pickle_protocol=4)
    with pytest.raises(FormatError, match=r"x\.pt: .* 2\b") as caught:
        open_checkpoint(path)
    assert "torch.save(model.state_dict(), PATH)" in caught.value.hint


def test_old_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "old.bin", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
    with pytest.raises(FormatError, match=r"old\.bin: .* 1\.6") as caught:
        open_checkpoint(path)
    assert f'weights_only=True), sys.argv[2])" {path} {tmp_path}/old-new.bin' in caught.value.hint
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(FormatError, match="Git LFS"):
        open_checkpoint(path)


@pytest.mark.parametrize("save", [save_torch, save_dcp])
def test_any_cut_and_any_changed_byte_is_refused_or_read(tmp_path: Path, save: Any) -> None:
    """For any damage, the error is one of maskreg's, and nothing outside the files is read."""
    tensors: dict[str, Tensor] = {"model.a.weight": bf16((6, 4)), "model.b.weight": bf16((3,))}
    folder = save(tmp_path / "run", tensors)
    rng = np.random.default_rng(0)
    refused = 0
    for file in [path for path in folder.iterdir() if path.suffix != ".json"]:
        data = file.read_bytes()
        cuts = [data[:at] for at in rng.integers(0, len(data), 40).tolist()]
        changes = []
        for at, change in rng.integers(0, [len(data), 256], (120, 2)).tolist():
            changed = bytearray(data)
            changed[at] ^= change
            changes.append(bytes(changed))
        for damaged in (*cuts, *changes):
            file.write_bytes(damaged)
            try:
                bits(folder)
            except MaskregError as error:
                refused += 1
                assert str(folder) in error.message or "model." in error.message
        assert all(len(cut) < len(data) for cut in cuts)
        file.write_bytes(cuts[0])
        with pytest.raises(MaskregError):
            bits(folder)
        file.write_bytes(data)
    assert refused > 60


def test_limits_hold(tmp_path: Path) -> None:
    path = save_torch(tmp_path, {"a": bf16((2,)), "b": bf16((2,))})
    bounds = {"pickle_bytes": 10, "pickle_steps": 10, "archive_bytes": 10, "tensors": 1, "numel": 1, "name_bytes": 0}
    for name, bound in bounds.items():
        with limited(**{name: bound}), pytest.raises(LimitError, match=rf"\b{bound}\b"):
            open_checkpoint(path)


def test_memory_does_not_grow_with_a_tensor(tmp_path: Path) -> None:
    state = {"w": torch.zeros(1 << 22, dtype=torch.int16), "t": torch.zeros(1 << 11, 1 << 12, dtype=torch.int16).t()}
    path = saved(tmp_path / "x.pt", state)
    with open_checkpoint(path) as checkpoint:
        tracemalloc.start()
        for name, info in checkpoint.tensors.items():
            for start in range(0, info.numel, 1 << 20):
                checkpoint.read(name, start, start + (1 << 18))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20
