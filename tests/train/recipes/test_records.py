from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.errors import DataError, FormatError, LimitError, NotFoundError, UsageError
from maskreg.train.recipes.records import MAX_LINE_BYTES, Records, drawn


def test_records_are_read_where_they_lie(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    lines = [{"prompt": "é" * 9}, {"prompt": "b"}, {"prompt": ""}]
    file.write_text(f"{json.dumps(lines[0])}\n\n   \n{json.dumps(lines[1])}\r\n{json.dumps(lines[2])}")
    records = Records.of(file)
    assert [record.fields for record in records] == lines
    assert [records[i].fields for i in (2, 0, 1)] == [lines[2], lines[0], lines[1]]
    assert [record.location for record in records] == [f"{file}:{number}" for number in (1, 4, 5)]
    assert records.digest != Records.of(_copy(file, b"\n")).digest


def _copy(file: Path, more: bytes) -> Path:
    other = file.with_name("other.jsonl")
    other.write_bytes(file.read_bytes() + more)
    return other


def test_what_is_no_data(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    with pytest.raises(NotFoundError, match="no such file"):
        Records.of(file)
    with pytest.raises(NotFoundError, match="a directory"):
        Records.of(tmp_path)
    file.write_text(" \n")
    with pytest.raises(DataError, match="no records"):
        Records.of(file)
    file.write_text('{"a": 1}\n{"a": NaN}\n')
    with pytest.raises(FormatError, match=r"data\.jsonl:2"):
        list(Records.of(file))
    file.write_bytes(b"x" * (MAX_LINE_BYTES + 1))
    with pytest.raises(LimitError, match="a line is longer than"):
        Records.of(file)


@given(st.integers(1, 40), st.integers(0, 5), st.integers(1, 17))
def test_every_epoch_has_every_record_once(records: int, seed: int, batch: int) -> None:
    steps = -(-3 * records // batch)
    order = [index for step in range(steps) for index in drawn(records, seed, step=step, batch=batch)]
    for epoch in range(3):
        assert sorted(order[epoch * records : (epoch + 1) * records]) == list(range(records))
    assert drawn(records, seed, step=2, batch=batch) == order[2 * batch : 3 * batch] or steps < 3


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [tuple(drawn(50, seed, step=step, batch=50)) for seed in (0, 1) for step in (0, 1)]
    assert len(set(orders)) == 4


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n')
    records = Records.of(file)
    assert [record.fields for record in records] == [{"a": 1}, {"a": 2}]
    assert records[0].fields == {"a": 1}
    file.write_bytes(b"\xef\xbb\xbf\n")
    with pytest.raises(DataError, match="no records"):
        Records.of(file)


def test_what_can_be_read_only_once_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipes and devices cannot be read") as caught:
        Records.of(tmp_path / "pipe")
    assert caught.value.hint


def test_a_record_with_other_fields_says_which(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"question": "1+1", "prompt": null}\n{"question": "1+1"}\n')
    null, absent = Records.of(tmp_path / "data.jsonl")
    with pytest.raises(FormatError, match="'prompt' is null"):
        null.text("prompt")
    with pytest.raises(FormatError, match="'prompt' is missing; the record has question") as caught:
        absent.text("prompt")
    assert "messages" in caught.value.hint


def test_a_record_that_is_nested_too_deeply_says_where(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"prompt": "1"}\n' + "[" * 100_000 + "\n")
    with pytest.raises(LimitError, match="nested deeper") as caught:
        list(Records.of(file))
    assert caught.value.hint == f"one JSON object per line, in UTF-8: sed -n 2p {file}"


def test_a_disk_that_does_not_return_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.jsonl").write_text("{}\n")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("maskreg.train.recipes.records._lines", fail)
    with pytest.raises(DataError, match=r"data\.jsonl: cannot be read \(Input/output error\)"):
        Records.of(tmp_path / "data.jsonl")
