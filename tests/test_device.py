from __future__ import annotations

import numpy as np
import pytest

from maskreg.codec import CODECS, get_codec
from maskreg.device import HostDevice, TorchDevice, open_device
from maskreg.errors import ConfigError, UsageError
from maskreg.tensors.rules import parse_rule
from tests.flow.making import every_special_pair


@pytest.mark.torch
@pytest.mark.parametrize("rule", ["exact", "abs:1e-5", "abs:0", "rel:1e-3"])
def test_both_devices_call_the_same_coordinates_moved(rule: str) -> None:
    (_, before), (_, after) = every_special_pair()
    here, there = (device.moved(parse_rule(rule), before, after) for device in (HostDevice(), TorchDevice("cpu")))
    assert here.dtype == there.dtype == np.bool_
    assert np.array_equal(here, there)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(CODECS))
def test_both_devices_decode_the_same_bits(name: str) -> None:
    (_, before), (_, after) = every_special_pair()
    context, values = before.reshape(-1), after.reshape(-1)
    block = get_codec(name).encode(context, values)
    for device in (HostDevice(), TorchDevice("cpu")):
        decoded = device.decode(get_codec(name), context, block)
        assert decoded.dtype == np.uint16
        assert np.array_equal(decoded, values)


@pytest.mark.torch
def test_read_only_values_may_be_given() -> None:
    codes = np.frombuffer(b"\x01\x00\x02\x00", np.uint16)
    assert TorchDevice("cpu").moved(parse_rule("exact"), codes, codes[::-1]).all()


def test_the_default_device_is_the_host() -> None:
    assert isinstance(open_device("cpu"), HostDevice)


@pytest.mark.parametrize("name", ["tpu", "", "gpu:0", "cuda:x", "cuda:-1", "CPU"])
def test_a_device_that_is_not_known_is_a_wrong_option(name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}'") as caught:
        open_device(name)
    assert "cpu or cuda" in caught.value.hint


@pytest.mark.torch
def test_a_device_that_this_machine_lacks_is_configuration() -> None:
    with pytest.raises(ConfigError, match="'cuda:9999'"):
        open_device("cuda:9999")
