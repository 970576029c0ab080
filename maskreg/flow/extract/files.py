"""The small files that travel with an artifact: those that differ between the two checkpoints, without code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.companions import can_run_code
from maskreg.checkpoint.files import same_content


@dataclass(frozen=True)
class CodeFiles:
    """Small files that can run code, by name; see :func:`maskreg.checkpoint.companions.can_run_code`.

    Attributes:
        taken: they are in the artifact.
        left_out: they are not.
    """

    taken: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def add_files(
    writer: ArtifactWriter, source: Checkpoint, target: Checkpoint, *, reversible: bool, with_code: bool
) -> CodeFiles:
    """Write the small files of the target that the source lacks or has otherwise; with ``reversible`` also back.

    Args:
        writer: of the artifact.
        source: the checkpoint that the artifact will apply to.
        target: the checkpoint that applying it gives.
        reversible: the source's files too.
        with_code: also files that can run code.

    Returns:
        Those that can run code.
    """
    directions: list[tuple[Checkpoint, Checkpoint, Callable[[str, bytes], None]]] = [(target, source, writer.add_file)]
    if reversible:
        directions.append((source, target, writer.add_reverse_file))
    code: set[str] = set()
    for checkpoint, reference, add in directions:
        for name, data, known in _differing_files(checkpoint, reference):
            if can_run_code(name, data, known):
                code.add(name)
                if not with_code:
                    continue
            add(name, data)
    names = tuple(sorted(code))
    return CodeFiles(names if with_code else (), () if with_code else names)


def _differing_files(checkpoint: Checkpoint, reference: Checkpoint) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Small files of ``checkpoint`` that ``reference`` lacks or has with other bytes, and those bytes."""
    known = reference.small_files()
    for name, path in sorted(checkpoint.small_files().items()):
        if name not in known:
            yield name, path.read_bytes(), None
        elif not same_content(path, known[name]):
            yield name, path.read_bytes(), known[name].read_bytes()
