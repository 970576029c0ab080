"""Commands about evidence, asked for what they cannot say: no claim that is not so, and no option without effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import Tensor, make_checkpoint, moved
from tests.cli.conftest import Run, tensors


@pytest.fixture
def updates(run: Run, tmp_path: Path) -> dict[str, Tensor]:
    """Updates ``a`` and ``b`` of one source: neither moves the head, and ``b`` has a NaN in the embedding."""
    source = tensors()
    make_checkpoint(tmp_path / "source", source)
    for seed, name in enumerate("ab"):
        target = {key: moved(tensor, 0.0 if key == "lm_head.weight" else 0.3, seed) for key, tensor in source.items()}
        if name == "b":
            target["model.embed_tokens.weight"][1][0, 0] = np.uint16(0x7FC0)
        make_checkpoint(tmp_path / name, target)
        run("extract", tmp_path / "source", tmp_path / name, "--name", name)
    return source


@pytest.mark.usefixtures("updates")
def test_a_selection_is_part_of_what_is_said_about_masks(run: Run) -> None:
    said = run("compare", "a", "b", "--role", "lm_head").out
    assert "a and b both hold no coordinates of what is compared" in " ".join(said.split())


def test_without_the_source_no_answer_speaks_of_rounding(run: Run, updates: dict[str, Tensor], tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "c", {key: moved(tensor, 0.3, 7) for key, tensor in updates.items()})
    run("extract", tmp_path / "source", tmp_path / "c", "--name", "c")
    assert run("compare", "a", "b", "c").out.startswith("More than rounding and chance give?")
    (tmp_path / "source" / "model.safetensors").unlink()
    assert run("compare", "a", "b", "c").out.startswith("More than chance gives?")


@pytest.mark.usefixtures("updates")
def test_an_analysis_says_which_tensors_it_leaves_out(run: Run) -> None:
    notes = run("analyze", "b", "--json").json["analysis"]["notes"]
    assert any(
        note.startswith("1 tensor with a NaN or an infinity, such as model.embed_tokens.weight") for note in notes
    )


@pytest.mark.usefixtures("updates")
def test_a_figure_that_is_undefined_is_not_said_to_be_unmeasured(run: Run) -> None:
    said = " ".join(run("analyze", "a", "--paper", "geo").out.split())
    assert "no matrix has principal_geo_0.30@rel:0.001: they are too small" in said
