"""What happens to a card and to a name when a pair is extracted again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import maskreg.flow.extract.extraction
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.cli.conftest import Run

REF = "toy-opd:v1"


def test_the_same_artifact_keeps_what_was_said_about_it(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("annotate", REF, "--license", "mit", "--meta", "seed=1", "--meta", "note=x")
    again = run("extract", *pair, "--name", REF, "--method", "rlvr", "--meta", "seed=2", "--meta", "note=", "--json")
    assert again.json["digest"] == artifact
    wanted = {"family": "toy", "method": "rlvr", "license": "mit", "meta": {"seed": "2"}}
    assert again.json["card"] == wanted
    assert run("show", REF, "--json").json["card"] == wanted
    count = len(run("log", REF, "--json").json)
    run("extract", *pair, "--name", REF)
    assert len(run("log", REF, "--json").json) == count


def test_another_artifact_starts_with_a_card_of_its_own(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    made = run("extract", pair[1], pair[0], "--name", REF, "--license", "mit", "--json").json
    assert made["digest"] != artifact
    assert made["card"] == {"license": "mit"}


def test_the_way_out_of_a_conflict_can_be_run(
    run: Run, artifact: str, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = maskreg.flow.extract.extraction.extract

    def overtaken(*args: Any, **options: Any) -> Any:
        done = before(*args, **options)
        with Registry.local(Settings.load()) as here:
            here.publish(Ref.parse("team/toy"), Digest(artifact), card=Card())
        return done

    monkeypatch.setattr("maskreg.flow.extract.extraction.extract", overtaken)
    error = run("extract", pair[1], pair[0], "--name", "team/toy", "--json", status=75).json["error"]
    program, *words = error["hint"].split()
    assert program == "maskreg"
    assert run(*words, "--json").json[0]["ref"] == "team/toy:OTHER-TAG"


def test_code_beside_the_weights_travels_on_request(run: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = pair
    (target / "modeling_toy.py").write_text("print('hello')")
    done = run("extract", source, target, "--name", "plain", "--json").json
    assert (done["code_files"], done["code_left_out"]) == ([], ["modeling_toy.py"])
    assert "left out, because it can run code: modeling_toy.py" in run("extract", source, target, "--name", "again").out
    done = run("extract", source, target, "--name", "coded", "--with-code", "--json").json
    assert (done["code_files"], done["code_left_out"]) == (["modeling_toy.py"], [])
    out = tmp_path / "out"
    applied = run("apply", "coded", "--source", source, "-o", out, "--json").json
    assert (applied["code_files"], applied["code_left_out"]) == ([], ["modeling_toy.py"])
    assert not (out / "modeling_toy.py").exists()
    said = run("apply", "coded", "--source", source, "-o", out, "--force", "--with-code").err
    assert "modeling_toy.py of the artifact can run code" in said
    assert (out / "modeling_toy.py").read_text() == "print('hello')"
