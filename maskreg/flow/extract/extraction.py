"""Extraction: compare two checkpoints block by block and write what moved, and to what, as an artifact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maskreg.artifact.manifest import PartName, Side, Tensor
from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint import layer_of, role_of
from maskreg.checkpoint.base import Checkpoint
from maskreg.codec import DEFAULT_CODEC, get_codec
from maskreg.device import Device, open_device
from maskreg.digest import Digest, fingerprint_root
from maskreg.errors import UsageError
from maskreg.flow.extract.diff import Compared, Comparer, runs_of
from maskreg.flow.extract.pairing import How, Pair, pair_up
from maskreg.flow.extract.small_files import differing_files
from maskreg.flow.extract.space import require_space
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.rules import Rule, parse_rule
from maskreg.settings import Settings
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.info import TensorInfo
from maskreg.words import counted


@dataclass(frozen=True)
class ExtractResult:
    """What extraction made.

    Attributes:
        digest: the artifact, now in the registry's folder.
        notes: what people should know about it, one sentence each.
    """

    digest: Digest
    notes: tuple[str, ...]


def extract(
    source: Checkpoint,
    target: Checkpoint,
    root: str | Path | None = None,
    *,
    rule: str = "exact",
    mask_only: bool = False,
    reversible: bool = False,
    allow_mismatch: bool = False,
    device: str | Device = "cpu",
    parents: Sequence[Digest] = (),
    recipe: Mapping[str, Any] | None = None,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> ExtractResult:
    """Compare two checkpoints and store what moved.

    Both sides are cast to bf16 and compared under ``rule``: the mask. The delta is taken between the stored bits,
    so that it gives the target exactly, unless the rule drops small changes (``abs:TAU``). Memory is bounded by
    the blocks in flight, whatever the size of the checkpoints. The same input gives the same digest.

    Args:
        source: the checkpoint that the artifact will be applied to.
        target: the checkpoint that post-training made of it.
        root: folder of the registry's file store; the local registry of the settings when left out. The artifact
            has no name there yet.
        rule: ``exact``, ``abs:TAU`` or ``rel:ETA``.
        mask_only: keep which coordinates moved, not to what.
        reversible: keep the source's values too, so that the target can be turned back.
        allow_mismatch: store whole, or list, tensors that do not pair up.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where coordinates are compared; the result does not depend on it.
        parents: artifacts that this one derives from.
        recipe: how the target came about, where it is known; part of the artifact's identity.
        progress: told about bytes of both sides.
        jobs: threads; by default what the machine has.

    Raises:
        UsageError: options that contradict each other, or a rule that makes no sense.
        DataError: checkpoints that do not pair up or cannot be read.
        NoSpaceError: the disk would fill up.
        ConfigError: there is no such device; or without ``root``, the settings are wrong.
    """
    if mask_only and reversible:
        raise UsageError("--reversible needs values, and --mask-only keeps none", hint="drop one of the two")
    moved_by = parse_rule(rule)
    threads = worker_count(jobs)
    where = open_device(device) if isinstance(device, str) else device
    root = Settings.load().home if root is None else Path(root)
    pairs, notes = pair_up(source, target, mask_only=mask_only, allow_mismatch=allow_mismatch)
    require_space(root, pairs, mask_only=mask_only, reversible=reversible)
    codec = None if mask_only else get_codec(DEFAULT_CODEC)
    comparer = Comparer(source, target, moved_by, codec, reversible, where)
    parts: list[PartName] = ["mask"]
    parts += ["delta"] if codec else []
    parts += ["reverse"] if reversible else []
    progress.start("compare", sum(t.nbytes for side in (source, target) for t in side.tensors.values()))
    with ArtifactWriter(root, parts) as writer, closing(ordered(comparer, runs_of(pairs), jobs=threads)) as results:
        sink = _Sink(writer, comparer)
        for compared in results:
            sink.take(compared)
            progress.advance(compared.read_bytes * (1 + len(compared.run.pair.aliases)))
        if codec:
            _add_files(writer, source, target, reversible)
        digest = writer.finish(
            kind="delta" if codec else "mask",
            rule=moved_by.name,
            exact=codec is not None and moved_by.keeps_target,
            source=_side(source, writer.tensors, "source", cast=""),
            target=_side(target, writer.tensors, "target", cast=_cast_of(pairs)),
            parents=parents,
            recipe=recipe,
            codec=codec.name if codec else "",
        )
    return ExtractResult(digest, (*notes, *_notes(writer.tensors, moved_by, mask_only, sink.changed)))


class _Sink:
    """Hands runs to the writer in order, and tensors that must be kept whole once they have turned out to differ."""

    def __init__(self, writer: ArtifactWriter, comparer: Comparer) -> None:
        self._writer = writer
        self._comparer = comparer
        self._differs = False
        self.changed = False

    def take(self, compared: Compared) -> None:
        pair, writer = compared.run.pair, self._writer
        if compared.run.start == 0:
            writer.begin(
                pair.name, role=role_of(pair.name), layer=layer_of(pair.name), source=pair.source, target=pair.held
            )
            self._differs = False
        if compared.packed is not None and compared.run.stop:
            writer.add_block(
                compared.packed,
                numel=compared.run.stop - compared.run.start,
                nnz=compared.nnz,
                differing=compared.differing,
                energy=compared.energy,
                delta=compared.delta,
                reverse=compared.reverse,
            )
        writer.add_leaves(compared.source_leaves, compared.target_leaves)
        if compared.target_bytes:
            writer.add_whole(compared.target_bytes)
        if compared.source_bytes:
            writer.add_reverse_whole(compared.source_bytes)
        self._differs |= compared.differs
        if compared.run.stop == pair.numel:
            self._end(pair)

    def _end(self, pair: Pair) -> None:
        if self._differs and self._comparer.codec and pair.how in (How.WIDE, How.OPAQUE):
            # Whether it differs is known only now, so the few tensors of this kind are read a second time.
            for start, stop in blocks_of(pair.numel):
                self._writer.add_whole(self._comparer.target.read(pair.name, start, stop).tobytes())
                if self._comparer.reversible:
                    self._writer.add_reverse_whole(self._comparer.source.read(pair.name, start, stop).tobytes())
        self.changed |= self._differs
        self._writer.end(pair.aliases)


def _side(checkpoint: Checkpoint, rows: Iterable[Tensor], side: str, *, cast: Literal["", "BF16"]) -> Side:
    prints: list[tuple[str, str, tuple[int, ...], str]] = []
    for row in rows:
        shape, dtype, digest = (getattr(row, f"{side}_{field}") for field in ("shape", "dtype", "fingerprint"))
        if shape is not None:
            prints += [(name, dtype, shape, digest) for name in (row.name, *row.aliases)]
    return Side(
        root=fingerprint_root(prints),
        hub=checkpoint.hub,
        params=sum(t.numel for t in checkpoint.tensors.values()),
        tensors=len(checkpoint.tensors),
        dtypes=_dtypes(checkpoint.tensors.values()),
        cast=cast,
    )


def _dtypes(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tensor in tensors:
        counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.numel
    return counts


def _cast_of(pairs: Iterable[Pair]) -> Literal["", "BF16"]:
    return "BF16" if any(p.how is How.CAST for p in pairs) else ""


def _notes(rows: Sequence[Tensor], rule: Rule, mask_only: bool, changed: bool) -> tuple[str, ...]:
    notes: list[str] = []
    if not changed:
        notes.append("the two checkpoints are identical: nothing moved")
    if not mask_only and not rule.keeps_target:
        notes.append(f"rule {rule.name} drops small changes: applying the delta does not give the target")
    notes += [f"{row.name} is tied: {', '.join(row.aliases)} stored once with it" for row in rows if row.aliases]
    kept = [row.name for row in rows if row.whole_bytes and row.numel]
    if kept:
        notes.append(f"{counted(len(kept), 'tensor', 'is')} wider than 16 bits and stored whole, such as {kept[0]}")
    return tuple(notes)


def _add_files(writer: ArtifactWriter, source: Checkpoint, target: Checkpoint, reversible: bool) -> None:
    for name, data in differing_files(target, source):
        writer.add_file(name, data)
    if reversible:
        for name, data in differing_files(source, target):
            writer.add_reverse_file(name, data)
