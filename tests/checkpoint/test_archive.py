"""Archives of torch.save: only what torch writes is read, and from nowhere else than where it should lie."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskreg.checkpoint import open_checkpoint
from maskreg.errors import FormatError, LimitError
from tests.checkpoint.saving import save_torch
from tests.checkpoints import bf16
from tests.limited import limited

TENSORS = {"model.a.weight": bf16((30, 4)), "model.b.weight": bf16((7,), 1)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_torch(tmp_path / "run", TENSORS) / "pytorch_model.bin"


def packed_again(
    path: Path, *, method: int = zipfile.ZIP_STORED, leave: str = "", many: bool = False, order: bytes = b"little"
) -> Path:
    """The same entries in an archive that Python writes."""
    again = path.with_name("again.bin")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(again, "w", method) as new:
        for name in old.namelist():
            if not leave or not name.endswith(leave):
                new.writestr(name, order if name.endswith("byteorder") else old.read(name))
        for number in range(120 * many):
            new.writestr(f"archive/other/{number}", b"")
    return again


def test_an_archive_that_torch_does_not_write_is_refused(path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": zipfile.ZIP_DEFLATED}, "it is compressed or encrypted"),
        ({"leave": "data/0"}, "not an archive of torch.save, or damaged"),
        ({"leave": "data.pkl"}, "not an archive of torch.save, or damaged"),
        ({}, "a storage does not lie where its pickle says"),
        ({"order": b"big"}, "saved on a machine with another order of bytes"),
    ]
    for options, fault in cases:
        again = packed_again(path, **options)
        with pytest.raises(FormatError) as caught:
            open_checkpoint(again)
        assert fault in caught.value.message


@pytest.mark.parametrize("beside", [b"data.pkl", b"DATA.PKL"])
def test_no_pickle_beside_the_one_that_is_checked_is_read(path: Path, beside: bytes) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        archive.writestr(zipfile.ZipInfo(name.replace("data.pkl", "data.new")), archive.read(name))
    path.write_bytes(path.read_bytes().replace(b"data.new", beside))  # torch ignores case
    with pytest.raises(FormatError):
        open_checkpoint(path)


def test_nothing_in_front_of_an_archive_is_read(path: Path) -> None:
    path.write_bytes(b"\x80\x02" + path.read_bytes())  # as a file of an older torch begins
    with pytest.raises(FormatError):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"PK\x03\x04",
        lambda data: data.replace(b"PK\x01\x02", b"PK\x01\x03", 1),
        lambda data: data.replace(b"PK\x03\x04", b"PK\x03\x05", 1),
        lambda data: data.replace(b"PK\x06\x06", b"PK\x06\x05", 1),
        lambda data: data.replace(b"little", b"biglie"),
    ],
    ids=["cut", "short", "directory", "header", "end", "order"],
)
def test_damage_is_refused(path: Path, damage: Callable[[bytes], bytes]) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FormatError) as caught:
        open_checkpoint(path)
    assert caught.value.message.startswith(f"{path}: ")


def test_a_directory_is_bounded_before_it_is_read(path: Path) -> None:
    for name, bound in {"archive_bytes": 100, "tensors": 0}.items():
        with limited(**{name: bound}), pytest.raises(LimitError):
            open_checkpoint(packed_again(path, many=True))
