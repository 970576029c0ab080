"""What people see at terminals of 60, 80 and 140 columns, of a model with 80 layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from maskreg_cli.geometry import geometry

from maskreg.digest import Digest
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.cli.conftest import Run
from tests.cli.terminal import at_terminal
from tests.repository import ROOT, modules

LAYERS = 80
NAME = "model.layers.{}.post_attention_layernorm.weight"


@pytest.fixture
def deep(run: Run, tmp_path: Path) -> None:
    """Two masks of a model with 80 layers, in which later layers move more."""
    source = {"lm_head.weight": bf16((50, 16), 1)}
    source |= {f"model.layers.{layer}.mlp.up_proj.weight": bf16((32, 16), layer) for layer in range(LAYERS)}
    source |= {NAME.format(layer): bf16((16,), layer) for layer in range(LAYERS)}
    before = make_checkpoint(tmp_path / "source", source)
    for seed, name in enumerate(("one", "two")):
        target = {
            key: moved(tensor, 0.1 + n % LAYERS / 200, 1000 * seed + n)
            for n, (key, tensor) in enumerate(source.items())
        }
        run("extract", before, make_checkpoint(tmp_path / name, target), "--name", name, "--mask-only")


@pytest.mark.usefixtures("deep")
def test_every_line_fits_and_no_word_is_broken() -> None:
    commands = [
        ("show", "one"),
        ("show", "one", "--by", "module"),
        ("show", "one", "--by", "tensor"),
        ("compare", "one", "two", "--by", "layer"),
        ("compare", "one", "two", "--by", "tensor", "--verbose"),
    ]
    for command in commands:
        widest = set(at_terminal(400, *command).split())
        for columns in (60, 80, 140):
            told = at_terminal(columns, *command).replace("\r", "")
            assert max(map(len, told.splitlines())) <= columns, (command, columns)
            if command[0] == "compare":
                assert set(told.split()) == widest, (command, columns)


@pytest.mark.usefixtures("deep")
def test_80_layers_are_folded_and_it_is_said_how_to_see_all(run: Run) -> None:
    commands = (
        ("show", "one"),
        ("show", "one", "--by", "layer"),
        ("compare", "one", "two", "--by", "layer"),
    )
    for command in commands:
        told = at_terminal(80, *command)
        # A pipe gets everything, as a terminal does with --verbose.
        whole = run(*command).out
        labels = [line.split()[0] for line in told.splitlines() if line.split()]
        assert {"0", "1", "79"} <= set(labels)
        assert "40" not in labels
        assert len(told.splitlines()) < 40
        assert "folded: " in told
        assert "--verbose" in told
        assert "folded: " not in whole
        assert "folded: " not in at_terminal(80, *command, "--verbose")
        assert {str(layer) for layer in range(LAYERS)} <= {
            line.split()[0] for line in whole.splitlines() if line.split()
        }


@pytest.mark.usefixtures("deep")
def test_digests_are_shortened_where_they_do_not_fit(run: Run) -> None:
    digest = run("show", "one", "--json").json["digest"]
    assert digest in run("show", "one").out
    narrow = at_terminal(80, "show", "one")
    assert Digest(digest).short in narrow
    assert digest not in narrow
    assert "in full: maskreg show one --verbose" in narrow
    assert digest in at_terminal(80, "show", "one", "--verbose")


def test_an_analysis_fits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    group = {
        "numel": 1_000_000,
        "tensors": 8,
        "sparsity": {"exact": {"value": 0.75, "null": 0.7496}},
        "relative_norm": {"value": 0.004555, "null": 0.001139},
        "energy_share": {"value": 0.25, "null": 0.125},
        "energy_lift": {"value": 2.0, "null": 1.0},
        "concentration": {"0.001": {"value": 0.0125, "null": 0.0031}},
        "figures": {
            name: {"matrices": 8, **dict.fromkeys(("mean", "median", "max"), value), "null_mean": 9.0, "chance": None}
            for name, value in {"stable_rank": 8.088, "energy_top_16": 0.8884, "projection_lift_0.10": 14.3}.items()
        },
    }
    digest = str(Digest.of(b"analysis"))
    document = {
        "of": digest,
        "total": group,
        "layers": {
            str(layer): {**group, "relative_norm": {"value": layer / 1e4, "null": 0.001}} for layer in range(80)
        },
        "notes": ["bf16 rounding fills the rank, so read every rank figure beside its rounding null"],
    }
    for columns in (60, 80, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        for verbose in (False, True):
            told = geometry("one-analysis", digest, document, "layer", verbose=verbose)
            assert max(map(len, told.splitlines())) <= columns
            assert ("folded: 74 of 80 layers" in told) != verbose
            assert {"8.09", "88.8", "14.3x"} <= set(told.replace("(", " ").split())
    assert told.startswith(
        "25.0 % of 1,000,000 coordinates moved, by 0.00456 of the norm of the weights (rounding null"
    )


def test_only_one_file_asks_for_the_width_of_the_terminal() -> None:
    asking = [path.name for path in modules("cli") if "terminal_size" in (ROOT / path).read_text()]
    assert asking == ["table.py"]


def test_a_definition_is_broken_between_words() -> None:
    for columns in (60, 80, 140):
        told = at_terminal(columns, "compare", "--explain", "headroom").replace("\r", "")
        assert max(map(len, told.splitlines())) <= columns
        assert " ".join(told.split()).startswith("headroom: Share of the room above a null's expectation")
