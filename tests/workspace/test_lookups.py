"""Search and show: what a registry holds, by numbers and in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg.workspace.storing import Stored
from tests.workspace.conftest import Lab


@pytest.mark.parametrize("name", ["text", "family", "method", "project", "license", "kind"])
def test_an_empty_filter_is_no_request_for_everything(ada: maskreg.Workspace, name: str) -> None:
    filters: dict[str, Any] = {name: ""}
    with pytest.raises(maskreg.UsageError, match=rf"\b{name}\b"):
        maskreg.search(**filters, workspace=ada)


def test_what_a_remote_has_is_described_as_well(ada: maskreg.Workspace, toy: Stored) -> None:
    with pytest.raises(maskreg.NotFoundError):
        maskreg.show("toy:v1", remote="team", workspace=ada)
    maskreg.push(toy, tag="shared", workspace=ada)
    local = maskreg.show("toy:v1", workspace=ada)
    remote = maskreg.show("toy:shared", remote="team", workspace=ada)
    assert (remote.digest, remote.manifest, remote.present) == (local.digest, local.manifest, ("delta", "mask"))
    assert (remote.rlvr_overlap, remote.seed_overlap) == (None, None)
    assert [entry.digest for entry in maskreg.log("toy:shared", remote="team", workspace=ada)] == [toy.digest]


def test_masks_of_a_remote_are_compared_where_they_are(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    maskreg.baseline(toy, kind="random-per-tensor", seed=1, name="random", workspace=ada)
    local = maskreg.compare("toy:v1", "random", workspace=ada)
    for name in ("toy:v1", "random"):
        maskreg.push(name, workspace=ada)
        maskreg.remove(name, workspace=ada)
    remote = maskreg.compare("toy:v1", "random", remote="team", workspace=ada)
    assert remote.pairs[0].whole.to_json() == local.pairs[0].whole.to_json()


def test_a_search_within_projects_knows_nothing_of_others(lab: Lab, ada: maskreg.Workspace, toy: Stored) -> None:
    assert len(maskreg.search(projects=["default"], workspace=ada)) == 1
    result = maskreg.search("toi:v1", projects=["lab"], workspace=ada)
    assert result.names == ()
    assert result.error is not None
    assert "toy" not in str(result.error.to_json())
    assert maskreg.search("nothing", advise=False, workspace=ada).remark == ""


def test_a_wrong_url_in_the_settings_is_said_with_its_file_and_key(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[remotes.team]\nurl = "gile:///team"\n')
    environment = {"MASKREG_CONFIG": str(config), "MASKREG_HOME": str(tmp_path / "home")}
    with (
        maskreg.Workspace(maskreg.Settings.load(environment)) as space,
        pytest.raises(maskreg.ConfigError, match=config.name) as raised,
    ):
        space.remote("team")
    assert raised.value.facts["setting"] == "remotes.team.url"
