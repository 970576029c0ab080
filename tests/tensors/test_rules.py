"""Rules for "moved", over every edge of bf16."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from maskreg.errors import BadRuleError
from maskreg.tensors.rules import RULES, parse_rule

Codes = npt.NDArray[np.uint16]
codes = arrays(np.uint16, 64)

# Zeros, subnormals, the smallest normal, one, the largest, infinities, quiet and signalling NaNs, of both signs.
_POSITIVE = [0x0000, 0x0001, 0x007F, 0x0080, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FC0, 0x7FC1, 0x7F81, 0x7FFF]
SPECIAL = np.array(_POSITIVE + [c | 0x8000 for c in _POSITIVE], np.uint16)


def fp32(values: Codes) -> npt.NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32)


def special_pairs() -> tuple[Codes, Codes]:
    return np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)


@pytest.mark.parametrize("name", ["exact", "abs:1e-05", "abs:0.0", "rel:0.001", "rel:0.0"])
def test_names_round_trip(name: str) -> None:
    assert parse_rule(name).name == name


@pytest.mark.parametrize(
    "text", ["", "exactly", "exact:1", "abs", "abs:", "abs:x", "abs:-1", "abs:nan", "abs:inf", "rel:0.00390625"]
)
def test_nonsense_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadRuleError) as caught:
        parse_rule(text)
    assert caught.value.hint


@pytest.mark.parametrize("word", RULES)
def test_every_rule_is_symmetric_and_still_on_equal_bits(word: str) -> None:
    rule = parse_rule(word if word == "exact" else f"{word}:1e-5")
    a, b = special_pairs()
    assert np.array_equal(rule.moved(a, b), rule.moved(b, a))
    assert not rule.moved(a, a).any()


def test_exact_is_bits_but_for_signed_zero() -> None:
    a, b = special_pairs()
    zeros = (fp32(a) == 0) & (fp32(b) == 0)
    assert np.array_equal(parse_rule("exact").moved(a, b), (a != b) & ~zeros)


def test_relative_equals_exact_on_all_neighbors() -> None:
    a = np.arange(0, 0x7F7F, dtype=np.uint16)
    b = a + np.uint16(1)
    eta = np.float32(1e-3)
    by_definition = np.abs(fp32(b) - fp32(a)) > eta * np.maximum(np.abs(fp32(a)), np.abs(fp32(b)))
    assert by_definition.all()
    assert parse_rule("rel:1e-3").moved(a, b).all()


@given(codes, codes)
def test_relative_and_absolute_equal_their_definitions_on_finite_numbers(a: Codes, b: Codes) -> None:
    finite = np.isfinite(fp32(a)) & np.isfinite(fp32(b))
    a, b = a[finite], b[finite]
    with np.errstate(over="ignore"):
        relative = np.abs(fp32(b).astype(np.float64) - fp32(a)) > 1e-3 * np.maximum(np.abs(fp32(a)), np.abs(fp32(b)))
        absolute = np.abs(fp32(b) - fp32(a)) > np.float32(1e-5)
    assert np.array_equal(parse_rule("rel:1e-3").moved(a, b), relative)
    assert np.array_equal(parse_rule("abs:1e-5").moved(a, b), absolute)


def test_absolute_calls_other_bits_moved_where_a_side_is_not_finite() -> None:
    a, b = special_pairs()
    odd = ~(np.isfinite(fp32(a)) & np.isfinite(fp32(b)))
    assert np.array_equal(parse_rule("abs:1e-5").moved(a, b)[odd], (a != b)[odd])


def test_tau_is_compared_in_fp32_not_in_bf16() -> None:
    # bf16(1e-5) is 1.0013580322265625e-05: a difference of that size is more than 1e-5.
    grid = np.array([0x3728], np.uint16)
    assert fp32(grid)[0] == np.float32(1.0013580322265625e-05)
    assert parse_rule("abs:1e-5").moved(np.zeros(1, np.uint16), grid).all()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["exact", "abs:1e-5", "rel:1e-3"])
@given(a=codes, b=codes)
def test_torch_gives_the_same_mask(name: str, a: Codes, b: Codes) -> None:
    import torch

    rule = parse_rule(name)
    a, b = np.concatenate([a, special_pairs()[0]]), np.concatenate([b, special_pairs()[1]])
    there = rule.moved(torch.from_numpy(a.view(np.int16)), torch.from_numpy(b.view(np.int16)))
    assert np.array_equal(there.numpy(), rule.moved(a, b))
