"""``scripts/clusters``: standard errors by what is a cluster, the last of which a comparison uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskreg.analysis.evidence import MATCHED, STRIPED, figures_of
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.overlap.measure import measure_overlap
from scripts import clusters
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.flow.making import extracted

NAMES = ("source", "opd", "rlvr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints whose tensors share channels and neurons; and one vector, which has neither."""
    source: dict[str, Tensor] = {"model.embed_tokens.weight": bf16((96, 32), 1), "model.norm.weight": bf16((32,), 2)}
    for layer in (0, 1):
        at = f"model.layers.{layer}"
        source[f"{at}.self_attn.q_proj.weight"] = bf16((32, 32), 3 + layer)
        for number, name in enumerate(("gate_proj", "up_proj")):
            source[f"{at}.mlp.{name}.weight"] = bf16((64, 32), 5 + 2 * layer + number)
        source[f"{at}.mlp.down_proj.weight"] = bf16((32, 64), 9 + layer)
    root = tmp_path_factory.mktemp("clusters")
    for place, name in enumerate(NAMES):
        fraction = (0.0, 0.4, 0.3)[place]
        tensors = {key: moved(tensor, fraction, 20 * place + n) for n, (key, tensor) in enumerate(source.items())}
        make_checkpoint(root / name, tensors if place else source)
    return root


def test_the_widest_clusters_are_those_of_a_comparison(folder: Path) -> None:
    source, *targets = (open_checkpoint(folder / name) for name in NAMES)
    totals = clusters.measured(source, (targets[0], targets[1]))
    artifacts = [extracted(folder / "home", source, target, mask_only=True) for target in targets]
    whole = measure_overlap(artifacts, source).pairs[0].whole
    found = figures_of(totals.neurons)
    assert found.counts == whole.counts
    for null in (MATCHED, STRIPED):
        assert found.nulls[null].headroom_interval == pytest.approx(whole.nulls[null].headroom_interval)
        assert found.nulls[null].ratio_interval == pytest.approx(whole.nulls[null].ratio_interval)
    # Clusters change no figure, only how well it is known.
    errors = [list(clusters.errors_of(sums)) for sums in (totals.own, totals.channels, totals.neurons)]
    assert [figures_of(sums).nulls[STRIPED].headroom for sums in (totals.own, totals.channels)] == pytest.approx(
        [found.nulls[STRIPED].headroom] * 2
    )
    assert len({tuple(line) for line in errors}) == 3
    assert min(map(min, errors)) > 0


def test_the_table_has_each_kind_of_cluster_beside_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["clusters", str(folder)])
    clusters.main()
    lines = capsys.readouterr().out.splitlines()
    values = [[float(word.rstrip("x")) for word in line[28:].split()] for line in lines[2:]]
    assert [line[:28].strip() for line in lines[2::2]] == [
        *("each tensor by itself", "channels shared", "channels and neurons shared")
    ]
    assert values[1] == [1.0] * 5
    for errors, ratios in zip(values[2::2], values[3::2], strict=True):
        widths = [error / least for error, least in zip(errors, values[0], strict=True)]
        assert ratios == pytest.approx(widths, abs=2e-3)
