"""Retraining runs on the page of their mask, beside their controls, with what was measured of them."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.catalog import Measurement
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.extract.extraction import extract
from maskreg.ref import Card, Ref
from maskreg.service.app import create_app
from tests.checkpoints import make_checkpoint, moved
from tests.service.pages.conftest import tensors
from tests.service.pages.test_artifact import plain, section
from tests.service.serving import service_in

RUNS: dict[str, dict[str, Any]] = {
    "team/run-mask": {},
    "team/run-random": {"control": {"kind": "random-per-tensor", "seed": 1}},
    "team/run-all": {"control": {"kind": "full"}},
    "secret/run-mask": {},
}


@pytest.fixture
def client(home: Path, tmp_path: Path) -> TestClient:
    """A client of a server with three runs on a mask, and one that only others may read."""
    folder = tmp_path / "home"
    shutil.copytree(home, folder, ignore=shutil.ignore_patterns("service.db*", "catalog.db*"))
    source = make_checkpoint(tmp_path / "source", tensors())
    with maskreg.Workspace(maskreg.Settings(home=folder, config_path=folder / "config.toml")) as space:
        mask = space.find("team/toy-opd:v1").digest
        for number, (ref, own) in enumerate(RUNS.items()):
            changed = {name: moved(tensor, 0.1, 900 + number) for name, tensor in tensors().items()}
            target = make_checkpoint(tmp_path / str(number), changed)
            recipe = {
                "kind": "retrain",
                "recipe": "sft",
                "parent": str(mask),
                "steps": 70,
                "lr": 1e-5,
                "seed": 3,
                **own,
            }
            with closing(open_checkpoint(source)) as before, closing(open_checkpoint(target)) as after:
                result = extract(before, after, folder, parents=[mask], recipe=recipe)
            space.local.publish(Ref.parse(ref), result.digest, card=Card())
            assert space.local.catalog is not None
            space.local.catalog.record(Measurement(result.digest, "accuracy", 0.25 + number / 8))
    return TestClient(create_app(service_in(folder, frozenset({"team"}))), "http://localhost")


def test_runs_stand_beside_their_controls(client: TestClient) -> None:
    text = client.get("/p/team/toy-opd:v1").text
    rows = [plain(row) for row in re.findall(r'<tr><th scope="row".*?</tr>', section(text, "runs"), re.DOTALL)]
    assert [row.split(" sft ")[0] for row in rows] == [
        "team/run-mask the mask",
        "team/run-all all coordinates",
        "team/run-random random-per-tensor",
    ]
    assert [row.split()[-1] for row in rows] == ["0.250", "0.500", "0.375"]
    assert "accuracy" in section(text, "runs")
    assert "secret" not in text


def test_a_run_leads_to_the_others_of_its_mask(client: TestClient) -> None:
    shown = section(client.get("/p/team/run-random").text, "runs")
    assert len(re.findall(r'<a href="/p/team/run-', shown)) == 3
    assert 'id="runs"' not in client.get("/p/team/both").text
