"""Every method on two real updates, bit for bit against whole models merged in fp32 by the papers' formulas."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from maskreg_cli.main import cli

from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, open_checkpoint
from maskreg.flow.merge import methods
from maskreg.flow.merge.checkpoint import MergedCheckpoint
from maskreg.flow.merge.methods import METHODS
from maskreg.flow.merge.methods.base import Method
from maskreg.flow.merge.recipe import Recipe
from scripts import commands
from tests.demo import DEMO
from tests.flow.making import extracted
from tests.flow.merge import dense


def cases() -> Iterator[tuple[str, dict[str, Any], tuple[float, ...]]]:
    """Every method with its defaults, and with every word of its settings beside other numbers and weights."""
    for name, method in METHODS.items():
        yield name, {}, (1.0, 1.0)
        words = max((len(setting.words) for setting in method.settings.values()), default=0)
        for number in range(max(words, 1)):
            settings: dict[str, Any] = {}
            for key, setting in method.settings.items():
                if setting.words:
                    settings[key] = setting.words[number % len(setting.words)]
                elif isinstance(setting.default, int):
                    settings[key] = setting.low if setting.low != setting.default else setting.default + 1
                else:
                    settings[key] = float(setting.default) / 2
            yield name, settings, (2.0, 0.5) if method.weighted else (1.0, 1.0)


class Tiny(NamedTuple):
    """Two real updates, as artifacts and as whole models in fp32."""

    source: Checkpoint
    artifacts: list[Artifact]
    models: list[Mapping[str, npt.NDArray[np.float32]]]


def whole(checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.float32]]:
    return {
        name: (checkpoint.read(name, 0, info.numel).astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
        for name, info in checkpoint.tensors.items()
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    checkpoints = [open_checkpoint(DEMO / name) for name in ("source", "target", "target-seed1")]
    home = tmp_path_factory.mktemp("home")
    artifacts = [extracted(home, checkpoints[0], target) for target in checkpoints[1:]]
    return Tiny(checkpoints[0], artifacts, [whole(checkpoint) for checkpoint in checkpoints])


def test_every_method_has_a_formula() -> None:
    assert set(METHODS) == dense.FORMULAS


@pytest.mark.parametrize(("method", "settings", "weights"), list(cases()))
def test_a_method_is_its_formula(tiny: Tiny, method: str, settings: dict[str, Any], weights: tuple[float, ...]) -> None:
    single = METHODS[method].operands == (1, 1)
    artifacts = tiny.artifacts[: 1 if single else 2]
    mask = tiny.artifacts[1] if METHODS[method].masked else None
    recipe = Recipe.of(method, weights[: len(artifacts)], settings)
    made = MergedCheckpoint(artifacts, tiny.source, recipe, mask=mask)
    source, *targets = tiny.models
    digests = [artifact.digest for artifact in tiny.artifacts]
    for name, expected in dense.merged(method, source, targets, digests, weights, **settings).items():
        values = expected.astype(np.float32).reshape(-1)
        np.testing.assert_array_equal(made.read(name, 0, values.size), dense.rounded(values), err_msg=name)
    assert made.report().whole.after


@pytest.fixture
def added_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Method]:
    """What CONTRIBUTING says about adding a merge method: one file in the folder."""
    file = tmp_path / "loudest.py"
    file.write_text(LOUDEST)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    found = methods.discovered()
    assert set(found) == {*METHODS, "loudest"}
    monkeypatch.setitem(cast("dict[str, Method]", METHODS), "loudest", found["loudest"])
    yield found["loudest"]
    sys.modules.pop(f"{methods.__name__}.loudest")


LOUDEST = '''
"""Loudest: of the changes of a coordinate, the largest."""

import numpy as np

from maskreg.flow.merge.methods.base import Floats, Method, Setting, Tile


@Method(
    "loudest",
    summary="the largest change of every coordinate",
    paper="arXiv 2400.00001",
    settings={"least": Setting(0.0, "smaller changes are left out", 0.0)},
    weighted=False,
)
def loudest(tile: Tile) -> Floats:
    """The largest change of every coordinate."""
    stacked = np.stack(tile.updates)
    largest = np.take_along_axis(stacked, np.abs(stacked).argmax(axis=0)[None], axis=0)[0]
    return np.where(np.abs(largest) < np.float32(tile.settings["least"]), np.float32(0), largest)
'''


def test_a_method_is_added_in_one_file(tiny: Tiny, added_method: Method) -> None:
    """The table, the help, the page and a merge know it."""
    help_text = CliRunner().invoke(cli, ["merge", "--help"]).output
    assert f"loudest          {added_method.summary} (least)" in help_text
    paper = "[arXiv 2400.00001](https://arxiv.org/abs/2400.00001)"
    assert f"| `loudest` | {added_method.summary} ({paper}) | `least=0` |" in commands.methods_table()
    made = MergedCheckpoint(tiny.artifacts, tiny.source, Recipe.of("loudest", [1.0, 1.0], {"least": "1e-9"}))
    name = "model.norm.weight"
    one, two = (target[name] - tiny.models[0][name] for target in tiny.models[1:])
    expected = tiny.models[0][name] + np.where(np.abs(two) > np.abs(one), two, one)
    np.testing.assert_array_equal(made.read(name, 0, expected.size), dense.rounded(expected))
