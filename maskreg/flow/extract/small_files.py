"""Small files that differ between two checkpoints: configuration, tokenizer, chat template."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator

from maskreg.checkpoint.base import Checkpoint


def differing_files(checkpoint: Checkpoint, reference: Checkpoint) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of small files of ``checkpoint`` that ``reference`` lacks or has with other bytes, by name.

    A checkpoint that is a single file has no small files, so it contributes none.
    """
    known = reference.small_files()
    for name, path in sorted(checkpoint.small_files().items()):
        if name not in known or not filecmp.cmp(path, known[name], shallow=False):
            yield name, path.read_bytes()
