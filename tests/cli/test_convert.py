"""``maskreg convert``: both ways, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import click
from maskreg_cli.main import cli

from maskreg.exchange import FORMATS
from tests.cli.conftest import Run
from tests.workspace.conftest import contents

REF = "toy-opd:v1"


def test_the_command_knows_every_format_and_option() -> None:
    command = cli.get_command(click.Context(cli), "convert")
    assert command is not None
    parameters = {param.name: param for param in command.params}
    for name in ("to", "from_"):
        choice = parameters[name].type
        assert isinstance(choice, click.Choice)
        assert list(choice.choices) == list(FORMATS)
    assert {option for known in FORMATS.values() for option in known.options} <= parameters.keys()


def test_an_update_goes_out_and_comes_back(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "step"
    done = run("convert", REF, "--to", "slime", "--source", pair[0], "-o", out)
    assert done.out == f"{out}\n"
    assert "converted to slime: 6 tensors, " in done.err
    back = run("convert", out, "--from", "slime", "--source", pair[0], "--name", "back:v2", "--method", "opd", "--json")
    assert back.json["digest"] == artifact
    assert back.json["ref"] == "back:v2"
    # The source is remembered, as after an extraction.
    run("convert", "back:v2", "--to", "sparse-safetensors", "-o", tmp_path / "sparse")


def test_an_output_that_exists_stays(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "step"
    line = ["convert", REF, "--to", "slime", "--source", pair[0], "-o", out]
    run(*line)
    (out / "notes.txt").write_text("mine")
    before = contents(out)
    assert "exists already" in run(*line, status=73).err
    assert contents(out) == before
    assert "kept in" in run(*line, "--force").err
    assert contents(out) == before
    assert "destroy the source" in run(*line[:-1], pair[0], "--force", status=73).err


def test_a_wrong_source_leaves_nothing(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "step"
    done = run("convert", REF, "--to", "slime", "--source", pair[1], "-o", out, status=65)
    assert "tensor model.embed_tokens.weight" in done.err
    assert not out.exists()
    run("convert", REF, "--to", "slime", "--source", pair[0], "-o", out)
    damaged = out / "model-00000-of-00001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    line = ["convert", out, "--from", "slime", "--source", pair[0], "--name", "back"]
    assert "cut short" in run(*line, status=65).err
    assert "back" not in run("list", "-q").out
