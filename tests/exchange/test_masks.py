"""Masks in safetensors files: loaded by the real library, and read back as one and the same artifact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import maskreg
from maskreg.errors import FormatError
from maskreg.flow.masks import RECIPE
from maskreg.workspace.storing import Stored
from tests.exchange.conftest import Lab

HALF = "model.half.weight"


def test_safetensors_loads_the_masks(lab: Lab) -> None:
    out = lab.folder / "masks.safetensors"
    converted = maskreg.convert_to("toy:v1", "safetensors-mask", out, workspace=lab.space)
    masks = load_file(out)
    assert masks.keys() == lab.toy.artifact.mask.keys()
    for key, mask in lab.toy.artifact.mask.items():
        assert masks[key].dtype == np.bool_
        assert np.array_equal(masks[key], mask.to_bool()), key
    assert converted.coordinates == sum(mask.nnz for mask in lab.toy.artifact.mask.values())
    assert (converted.source, converted.bytes) == (None, out.stat().st_size)


def test_a_mask_comes_back(lab: Lab) -> None:
    back = converted(lab, "toy:v1")
    manifest = back.manifest
    assert (manifest.kind, manifest.recipe, manifest.target) == ("mask", RECIPE, manifest.source)
    assert manifest.source == lab.toy.manifest.source
    for key, mask in lab.toy.artifact.mask.items():
        assert np.array_equal(back.artifact.mask[key].packed, mask.packed)
    # Tied weights are one, as in the artifact.
    assert [row.aliases for row in back.artifact.tensors] == [row.aliases for row in lab.toy.artifact.tensors]
    assert converted(lab, "back").digest == back.digest


def test_masks_without_a_target_come_back_as_the_same_artifact(lab: Lab) -> None:
    combined = maskreg.combine(["toy:v1"], "both", at_least=1, workspace=lab.space)
    drawn = maskreg.baseline("toy:v1", "random-global", "drawn", workspace=lab.space)
    for artifact in (combined, drawn):
        assert converted(lab, artifact).digest == artifact.digest


def converted(lab: Lab, artifact: Any) -> Stored:
    """What comes back of an artifact's masks, called ``back``."""
    out = lab.folder / "masks.safetensors"
    maskreg.convert_to(artifact, "safetensors-mask", out, force=True, workspace=lab.space)
    return maskreg.convert_from(out, "safetensors-mask", lab.source, "back", workspace=lab.space)


def test_values_of_zero_and_one_are_masks_in_any_dtype(lab: Lab) -> None:
    mask = np.zeros((30, 3), np.bool_)
    mask[4, 1] = mask[29, 2] = True
    for dtype in (np.bool_, np.uint8, np.int64, np.float16, np.float32, np.float64):
        save_file({HALF: mask.astype(dtype)}, lab.folder / "m.safetensors")
        back = maskreg.convert_from(lab.folder / "m.safetensors", "safetensors-mask", lab.source, workspace=lab.space)
        assert np.array_equal(back.artifact.mask[HALF].to_bool(), mask)
        assert back.manifest.totals.nnz == 2


def test_what_is_no_mask_of_the_source_is_refused_by_name(lab: Lab) -> None:
    cases: list[tuple[str, str, Any]] = [
        (HALF, " 0 .* 1 ", np.full((30, 3), 2, np.uint8)),
        (HALF, " 0 .* 1 ", np.full((30, 3), 0.5, np.float32)),
        (HALF, r"\[3, 30\].*\[30, 3\]", np.ones((3, 30), np.bool_)),
        ("model.nothing", str(lab.source), np.ones((3, 30), np.bool_)),
    ]
    for name, message, mask in cases:
        save_file({name: mask}, lab.folder / "m.safetensors")
        with pytest.raises(FormatError, match=rf"tensor '?{name}.*{message}"):
            maskreg.convert_from(lab.folder / "m.safetensors", "safetensors-mask", lab.source, workspace=lab.space)
