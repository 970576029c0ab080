"""Other tools' names for the tensors of a model: which tool has them, and how to get to names that fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from maskreg.tensors.names import shown


class Dialect(NamedTuple):
    """A tool's names.

    Attributes:
        names: what they are.
        marks: a name that gives them away.
        saved: the next step where a checkpoint has them.
        loaded: the next step where a model in memory has them.
    """

    names: str
    marks: re.Pattern[str]
    saved: str
    loaded: str


_AS_SAVED = "load the model with from_pretrained of transformers, patch that, and convert it afterwards"

DIALECTS = (
    Dialect(
        "fused projections, as vLLM has them",
        re.compile(r"(?:.+\.)?(?:qkv_proj|gate_up_proj)\.(?:weight|bias)"),
        "name the checkpoint that the engine loads, or save the model with save_pretrained of transformers",
        "pass a dictionary of views under the checkpoint's names, or write the indices and values that vLLM's "
        "CheckpointWeightPatch takes, which a conversion to sparse-safetensors gives",
    ),
    Dialect(
        "Megatron's names",
        re.compile(
            r"(?:.+\.)?decoder\.layers\.\d+\.(?:self_attention\.linear_(?:qkv|proj)|mlp\.linear_fc[12])\.(?:weight|bias)"
        ),
        "export it for transformers, for instance with Megatron Bridge, and name the folder of that",
        _AS_SAVED,
    ),
    Dialect(
        "torchtune's names",
        re.compile(r"(?:.+\.)?layers\.\d+\.(?:sa_norm|mlp_norm)\.scale"),
        "save it with torchtune's FullModelHFCheckpointer, and name the folder of that",
        _AS_SAVED,
    ),
    Dialect(
        "Meta's names",
        re.compile(r"layers\.\d+\.(?:attention\.w[qkvo]|feed_forward\.w[123])\.weight"),
        "convert it for transformers, and name the folder of that; of torchtune, save with FullModelHFCheckpointer",
        _AS_SAVED,
    ),
)
"""Names that are known, the first that fits."""


def dialect_of(names: Iterable[str], others: Iterable[str]) -> tuple[Dialect, str] | None:
    """The dialect of names that do not fit the others, and a name that gives it away; None where others have it too."""
    mine, theirs = list(names), list(others)
    for dialect in DIALECTS:
        sample = next(filter(dialect.marks.fullmatch, mine), None)
        if sample is not None and not any(map(dialect.marks.fullmatch, theirs)):
            return dialect, shown(sample)
    return None
