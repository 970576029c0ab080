"""Sampling: the same random numbers for a prompt wherever it is, the model's own distribution, ends and padding."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.errors import UsageError
from maskreg.train.recipes import rollout
from maskreg.train.recipes.rollout import Randomness, Sampling, logits_of, sample, uniform
from tests.train.small import END, PAD, VOCABULARY, small_model

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 6, 7], [2, 3]]
SAMPLING = Sampling(9, [END], PAD)
RANDOMNESS = Randomness(4)


def test_a_prompt_has_the_same_completion_in_every_batch() -> None:
    model = small_model()
    whole = sample(model, PROMPTS, SAMPLING, RANDOMNESS)
    for rows in (1, 2, 5):
        assert sample(model, PROMPTS, replace(SAMPLING, rows=rows), RANDOMNESS).lists() == whole.lists()
    assert sample(model, PROMPTS[2:3], SAMPLING, RANDOMNESS).lists() == whole.lists()[2:3]
    assert sample(model, PROMPTS[3:4], SAMPLING, Randomness(4, draws=[1])).lists() == whole.lists()[3:4]
    assert whole.lists()[0] != whole.lists()[3], "the same prompt twice is drawn twice"
    assert sample(model, PROMPTS, SAMPLING, Randomness(4, step=1)).lists() != whole.lists()
    assert sample(model, PROMPTS, SAMPLING, Randomness(5)).lists() != whole.lists()


def test_rows_are_padded_around_where_completions_start() -> None:
    found = sample(small_model(), PROMPTS, SAMPLING, RANDOMNESS)
    assert found.start == 5
    for row, prompt in enumerate(PROMPTS):
        assert found.tokens[row, : found.start].tolist() == [PAD] * (5 - len(prompt)) + prompt
        assert found.present[row, : found.start].tolist() == [False] * (5 - len(prompt)) + [True] * len(prompt)
        said = found.lists()[row]
        assert 1 <= len(said) <= 9
        assert END not in said[:-1] and (len(said) == 9 or said[-1] == END)
        assert found.completions[row, len(said) :].eq(PAD).all()
        assert not found.counted[row, len(said) :].any()


def test_logits_are_those_of_each_row_alone() -> None:
    model = small_model()
    found = sample(model, PROMPTS, SAMPLING, RANDOMNESS)
    logits = logits_of(model, found)
    assert logits.shape == (*found.completions.shape, VOCABULARY)
    for row, prompt in enumerate(PROMPTS):
        said = found.lists()[row]
        alone = model(input_ids=torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1]
        assert torch.allclose(logits[row, : len(said)], alone, atol=1e-4)


def test_greedy_tokens_are_the_likeliest() -> None:
    model = small_model(1)
    found = sample(model, PROMPTS, replace(SAMPLING, temperature=0), RANDOMNESS)
    likeliest = logits_of(model, found).argmax(-1)
    assert torch.equal(likeliest[found.counted], found.completions[found.counted])


def test_samples_follow_the_model() -> None:
    model = small_model(2)
    count = 4000
    found = sample(model, [[5, 6]] * count, replace(SAMPLING, rows=count, tokens=1), RANDOMNESS)
    chances = model(input_ids=torch.tensor([[5, 6]])).logits[0, -1].softmax(-1)
    seen = Counter(row[0] for row in found.lists())
    for token in range(VOCABULARY):
        wanted = chances[token].item() * count
        assert abs(seen[token] - wanted) < 5 * wanted**0.5 + 5


def test_sampling_leaves_the_model_in_its_mode() -> None:
    model = small_model()
    for training in (True, False):
        model.train(training)
        sample(model, [[3]], SAMPLING, RANDOMNESS)
        assert model.training is training


def test_answers_that_are_there_take_the_same_form() -> None:
    found = rollout.given([[5], [6, 7]], [[8, 9, END], [END]], pad=PAD)
    assert found.tokens.tolist() == [[PAD, 5, 8, 9, END], [6, 7, END, PAD, PAD]]
    assert found.lists() == [[8, 9, END], [END]]


@settings(max_examples=20)
@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.lists(st.integers(0, 2**17), min_size=1), st.integers(0, 9))
def test_random_numbers_depend_on_all_that_they_should(seed: int, step: int, prompt: list[int], draw: int) -> None:
    numbers = uniform(seed, step, prompt, draw, 16)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert np.array_equal(uniform(seed, step, prompt, draw, 8), numbers[:8])
    for other in (
        uniform(seed + 1, step, prompt, draw, 16),
        uniform(seed, step + 1, prompt, draw, 16),
        uniform(seed, step, [*prompt, 1], draw, 16),
        uniform(seed, step, prompt, draw + 1, 16),
    ):
        assert not np.isin(other, numbers).any()


def test_random_numbers_never_change() -> None:
    assert uniform(1, 2, [3, 4], 0, 2).tolist() == [0.5342092789831406, 0.13365897924780712]


@pytest.mark.parametrize(
    ("prompts", "options"), [([], {}), ([[]], {}), (PROMPTS, {"tokens": 0}), (PROMPTS, {"temperature": -1.0})]
)
def test_nothing_to_sample_is_refused(prompts: list[list[int]], options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="sampling needs"):
        sample(small_model(), prompts, replace(SAMPLING, **options), RANDOMNESS)
    with pytest.raises(UsageError, match="needs a completion"):
        rollout.given([[1]], [[]], pad=PAD)
