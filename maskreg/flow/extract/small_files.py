"""Small files that one checkpoint has otherwise than another: configuration, tokenizer, chat template."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator

from maskreg.checkpoint.base import Checkpoint


def differing_files(checkpoint: Checkpoint, other: Checkpoint) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of small files of ``checkpoint`` that ``other`` lacks or has with other bytes, by name.

    A checkpoint that is a single file has no files beside it, and so says nothing about them.
    """
    there = other.small_files()
    for name, path in sorted(checkpoint.small_files().items()):
        if name not in there or not filecmp.cmp(path, there[name], shallow=False):
            yield name, path.read_bytes()
