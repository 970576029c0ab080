"""Trainers and models of transformers without their progress bars and remarks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Progress and remarks of transformers are no part of any result."""
    from transformers.utils import logging as theirs

    shown, level = theirs.is_progress_bar_enabled(), theirs.get_verbosity()
    theirs.disable_progress_bar()
    theirs.set_verbosity(logging.ERROR)
    yield
    theirs.set_verbosity(level)
    if shown:
        theirs.enable_progress_bar()
