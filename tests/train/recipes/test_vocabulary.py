"""Teachers whose tokens are not the student's are refused."""

from types import SimpleNamespace

import pytest

from maskreg.errors import PairMismatchError
from maskreg.train.recipes.vocabulary import check_vocabularies
from tests.train.small import small_model


def tokenizer(*tokens: str) -> SimpleNamespace:
    return SimpleNamespace(get_vocab=lambda: {token: index for index, token in enumerate(tokens)})


def test_models_of_one_vocabulary_pass() -> None:
    model = small_model()
    check_vocabularies(model, model.config, tokenizer("a", "b"), tokenizer("a", "b"))


def test_sizes_are_those_of_the_models() -> None:
    with pytest.raises(PairMismatchError, match="has 24 entries, the teacher's 32"):
        check_vocabularies(small_model(), small_model(vocabulary=32), tokenizer("a"), tokenizer("a"))


def test_the_first_token_that_differs_is_named() -> None:
    model = small_model()
    with pytest.raises(PairMismatchError, match="4 entries differ between the tokenizers: token 1 is 'b' for the stu"):
        check_vocabularies(model, model, tokenizer("a", "b", "c"), tokenizer("a", "c", "b"))
