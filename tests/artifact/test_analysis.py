"""Figures at rest: what a reader refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.analysis import read_analysis, write_analysis
from maskreg.artifact.layout import ANALYSIS, artifact_prefix, part_of
from maskreg.artifact.reader import Artifact
from maskreg.errors import CorruptError, FormatError, LimitError, PartAbsentError
from maskreg.store.file import FileStore
from tests.flow.making import edge_pair, extracted, opened
from tests.limited import limited


@pytest.fixture
def delta(tmp_path: Path) -> Artifact:
    return extracted(tmp_path, *opened(tmp_path, *edge_pair()))


def kept(root: Path, of: Artifact, document: Any) -> Artifact:
    return Artifact.open(FileStore(root), write_analysis(root, of, document, {"kind": "analysis"}))


def test_what_was_written_is_read(tmp_path: Path, delta: Artifact) -> None:
    found = kept(tmp_path, delta, {"x": [1, None, 0.5]})
    assert read_analysis(found) == {"x": [1, None, 0.5], "schema": "maskreg.analysis/1"}
    assert found.tensors == delta.tensors
    assert found.present() == {"analysis"}
    assert part_of(ANALYSIS) == "analysis"


def test_an_artifact_of_another_kind_holds_none(delta: Artifact) -> None:
    with pytest.raises(PartAbsentError) as caught:
        read_analysis(delta)
    assert "maskreg analyze" in next_step(caught.value)


def test_damage_is_found(tmp_path: Path, delta: Artifact) -> None:
    found = kept(tmp_path, delta, {"x": 1})
    place = tmp_path / artifact_prefix(found.digest) / ANALYSIS
    data = place.read_bytes()
    place.write_bytes(data.replace(b"1", b"2", 1))
    with pytest.raises(CorruptError):
        read_analysis(found)
    place.unlink()
    with pytest.raises(PartAbsentError):
        read_analysis(Artifact.open(FileStore(tmp_path), found.digest))


def test_limits_and_unknown_schemas(tmp_path: Path, delta: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    large = kept(tmp_path, delta, {"x": "y" * 500})
    with limited(analysis_bytes=100), pytest.raises(LimitError):
        read_analysis(large)
    monkeypatch.setattr("maskreg.artifact.analysis.ANALYSIS_SCHEMA", "maskreg.analysis/2")
    newer = kept(tmp_path, delta, {"x": 2})
    monkeypatch.undo()
    with pytest.raises(FormatError, match="analysis/2"):
        read_analysis(newer)
