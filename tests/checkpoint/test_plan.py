from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint.layouts import INDEX_NAME
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.safetensors import open_path, parse_header
from maskreg.errors import FormatError
from maskreg.tensors.info import TensorInfo
from tests.checkpoints import SMALL_FILES, bf16, make_checkpoint, write_safetensors

TENSORS = {name: bf16((4, 2)) for name in "abcd"}


def plan_of(path: Path, **changes: Any) -> OutputPlan:
    with open_path(path) as source:
        return plan_like(source, **changes)


def names(plan: OutputPlan) -> list[str]:
    return [info.name for info in plan.tensors]


@pytest.mark.parametrize("shards", [1, 2])
def test_nothing_changes(tmp_path: Path, shards: int) -> None:
    make_checkpoint(tmp_path, TENSORS, shards=shards)
    same = {"a": TensorInfo("a", "BF16", (4, 2))}
    with open_path(tmp_path) as source:
        plan = plan_like(source, replace=same)
        assert plan.shards == source.shards
        assert plan.index == source.index
        assert plan.files == source.small_files()
    assert not plan.single_file
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert plan.total_bytes == on_disk


def test_only_the_shard_that_changes_gets_a_new_header(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TENSORS, shards=2)
    with open_path(tmp_path) as source:
        plan = plan_like(source, replace={"c": TensorInfo("c", "BF16", (9, 2))})
        assert plan.shards[0] == source.shards[0]
    assert names(plan) == list("abcd")
    again = parse_header(plan.shards[1].header, plan.shards[1].data_bytes, plan.shards[1].file_name)
    assert again == plan.shards[1]
    assert again.metadata == {"format": "pt"}
    index = json.loads(plan.index)
    assert index["metadata"]["total_size"] == 2 * 8 * 3 + 2 * 18
    assert index["weight_map"]["c"] == plan.shards[1].file_name


def test_an_index_keeps_its_other_metadata(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TENSORS, shards=2)
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    index["metadata"] = {"total_size": 64, "total_parameters": 32, "made_by": "x"}
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    plan = plan_of(tmp_path, remove=["a"])
    assert json.loads(plan.index)["metadata"] == {"total_size": 48, "total_parameters": 24, "made_by": "x"}
    assert plan_of(tmp_path).index == (tmp_path / INDEX_NAME).read_bytes()


def test_remove_and_add(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TENSORS, shards=2)
    plan = plan_of(tmp_path, remove={"a", "b"}, add=[TensorInfo("e", "BF16", ()), TensorInfo("f", "BF16", (0,))])
    assert len(plan.shards) == 1
    assert names(plan) == ["c", "d", "e", "f"]
    assert set(json.loads(plan.index)["weight_map"]) == set("cdef")


def test_everything_is_removed(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TENSORS)
    plan = plan_of(tmp_path, remove=list(TENSORS))
    assert names(plan) == []
    assert len(plan.shards) == 1


def test_tensors_stay_aligned(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, {"a": bf16((3,)), "b": bf16((2,))})
    plan = plan_of(tmp_path, add=[TensorInfo("wide", "F32", (2,)), TensorInfo("byte", "U8", (1,))])
    assert names(plan) == ["wide", "a", "b", "byte"]
    assert len(plan.shards[0].header) % 8 == 0
    # What is aligned as it stands is left in its order.
    assert names(plan_of(tmp_path, replace={"b": TensorInfo("b", "U8", (5,))})) == ["a", "b"]


def test_small_files(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TENSORS)
    plan = plan_of(tmp_path, files={"config.json": b"new", "chat_template.jinja": b"j"})
    assert plan.files == {
        "config.json": b"new",
        "tokenizer.json": tmp_path / "tokenizer.json",
        "chat_template.jinja": b"j",
    }


@pytest.mark.parametrize(
    "name",
    ["../x.json", "/x.json", "a/b.json", "a\\b.json", "..", "", ".x.json", "x\n.json", "x.bin", "model.safetensors",
     INDEX_NAME, "consolidated.json", "run.sh"],
)  # fmt: skip
def test_names_that_do_not_travel(tmp_path: Path, name: str) -> None:
    make_checkpoint(tmp_path, TENSORS)
    with pytest.raises(FormatError, match=re.escape(repr(name))):
        plan_of(tmp_path, files={name: b""})


def test_a_single_file(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", TENSORS)
    for name, data in SMALL_FILES.items():
        (tmp_path / name).write_bytes(data)
    plan = plan_of(path)
    assert plan.single_file
    assert plan.files == {}
    assert plan.sources == (path.resolve(),)
