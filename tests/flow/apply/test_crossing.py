"""What crosses the bus when a model on a device is patched: coded blocks, and a few bytes per leaf."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compiling import printed
from tests.flow.apply.crossing import source_of, target_of
from tests.flow.making import extracted, opened
from tests.machines import DEVICES


@pytest.fixture(scope="module", params=DEVICES)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What :mod:`tests.flow.apply.crossing` prints, once per device."""
    directory, source = tmp_path_factory.mktemp("crossing"), source_of()
    extracted(directory, *opened(directory / "pair", source, target_of(source)))
    return printed("tests.flow.apply.crossing", str(directory), device=request.param)


def test_the_model_is_patched_on_its_device(outcome: Any) -> None:
    assert outcome["right"]


def test_no_weights_cross_the_bus(outcome: Any) -> None:
    """Blocks cross twice, once to be checked and once to be written, with their models and directories unpacked."""
    bus = outcome["bus"]
    assert set(bus) <= {"blocks", "stored", "addresses", "hashes", "outcomes", "short leaves", "constants"}
    assert bus["blocks"] + bus["stored"] < 2 * (outcome["payload"] + 2_000)
    # An address, a length and a hash of each leaf, for three passes over results and what is at hand.
    assert bus["addresses"] == bus["hashes"] <= 16 * 3 * 5
    assert "short leaves" not in bus
