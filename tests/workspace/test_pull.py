"""Pull where a remote is asked, and where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import maskreg
from maskreg.errors import UnavailableError
from maskreg.workspace.storing import Stored


def test_what_is_here_is_found_without_the_remote(ada: maskreg.Workspace, bob: maskreg.Workspace, toy: Stored) -> None:
    maskreg.push(toy, workspace=ada)
    with maskreg.Workspace(replace(bob.settings, offline=True)) as offline:
        with pytest.raises(maskreg.NotFoundError):
            maskreg.pull("toy:v1", workspace=offline)
        assert maskreg.pull("toy:v1", remote="team", workspace=bob).digest == toy.digest
        assert maskreg.pull("toy:v1", workspace=offline).digest == toy.digest
        with pytest.raises(UnavailableError):
            maskreg.pull("toy:v1", remote="team", workspace=offline)
    with pytest.raises(maskreg.ConfigError, match="nowhere"):
        maskreg.pull("toy:v1", remote="nowhere", workspace=bob)
