"""Extraction: diff two checkpoints block by block and write mask and delta as an artifact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from maskreg.artifact.manifest import PartName, Side
from maskreg.artifact.tensors import Tensor
from maskreg.artifact.totals import side_tensors
from maskreg.artifact.writer import ArtifactWriter
from maskreg.checkpoint import layer_of, named_like, role_of, with_both_names
from maskreg.checkpoint.ahead import ahead, blocks_ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.files import can_run_code, left_out_note, same_content
from maskreg.codec import DEFAULT_CODEC, Codec, get_codec
from maskreg.device import Device, open_device
from maskreg.digest import Digest, fingerprint_root
from maskreg.errors import CorruptError, PairMismatchError, UsageError
from maskreg.exchange.base import OTHER_VALUES
from maskreg.flow.extract.differ import BlockDiff, Differ, spans_of
from maskreg.flow.extract.pairing import Pair, StoredAs, estimated_bytes, pair_up
from maskreg.flow.storing import artifact_space
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.info import numel_of
from maskreg.tensors.rules import Rule, parse_rule
from maskreg.words import counted


@dataclass(frozen=True)
class ExtractResult:
    """An artifact, now in the registry's folder; and warnings and remarks, one sentence each.

    Attributes:
        code_files: small files in it that can run code.
        code_left_out: small files of the checkpoints that can run code, and are not in it.
    """

    digest: Digest
    notes: tuple[str, ...]
    code_files: tuple[str, ...] = ()
    code_left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Where a target comes from, as its artifact records it, and what is known of both sides before they are read.

    Attributes:
        parents: what it was made of.
        recipe: its lineage recipe.
        source_root: an identity that the source must turn out to have; empty for any.
        checks: fingerprints that the target's tensors must turn out to have, by name.
    """

    parents: Sequence[Digest] = ()
    recipe: Mapping[str, Any] | None = None
    source_root: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)


def checked_rule(rule: str, *, mask_only: bool, reversible: bool) -> Rule:
    """The rule of an extraction, whose options do not contradict each other."""
    if mask_only and reversible:
        raise UsageError("a mask alone holds no values, so it cannot be reversible", hint="choose one of the two")
    return parse_rule(rule)


def extract(
    source: Checkpoint,
    target: Checkpoint,
    root: str | Path,
    *,
    rule: str = "exact",
    mask_only: bool = False,
    reversible: bool = False,
    allow_mismatch: bool = False,
    with_code: bool = False,
    device: str | Device = "cpu",
    provenance: Provenance = Provenance(),
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> ExtractResult:
    """Diff two checkpoints and store mask and delta as an artifact.

    Both sides are cast to bf16 and compared under ``rule``: the mask. The delta is between stored bits, so it gives the
    target exactly, unless the rule drops small changes (``abs:TAU``). The same input gives the same digest.

    A pipeline in block order, with ``jobs + 2`` blocks in memory, for checkpoints of any size::

        caller's thread     spans_of: (w, 0..4M) (w, 4M..8M) (v, 0..1M) ...         drawn as room becomes free
        worker threads      Differ: read both sides, cast, compare, code, hash      any order
        caller's thread     Writing: append       to mask, delta, leaves            in the order of the spans

    Since blocks arrive in order, offsets are running sums, and thread count and timing change no byte. Nor does the
    device, where codes are compared. ``root`` is the folder of the registry's file store.
    """
    parsed = checked_rule(rule, mask_only=mask_only, reversible=reversible)
    threads = worker_count(jobs)
    root = Path(root)
    target = named_like(target, source.tensors)
    source = with_both_names(source, target.tensors)
    pairs, notes = pair_up(source, target, mask_only=mask_only, allow_mismatch=allow_mismatch)
    codec = None if mask_only else get_codec(DEFAULT_CODEC)
    extraction = Extraction(source, target, pairs, notes, parsed, codec, reversible)
    differ = Differ(source, target, parsed, codec, reversible, open_device(device))
    spans = ahead(spans_of(pairs), lambda span: (span.pair.name, span.start, span.stop), source, target)
    label = str((provenance.recipe or {}).get("kind", "extract"))
    progress.start(label, sum(t.nbytes for side in (source, target) for t in side.tensors.values()))
    with (
        extraction.writing(root, threads) as writing,
        closing(ordered(differ, spans, jobs=threads, size=numel_of)) as diffs,
    ):
        for diff in diffs:
            writing.add(diff)
            progress.advance(diff.read_bytes * (1 + len(diff.span.pair.aliases)))
        return writing.finish(provenance, with_code=with_code)


@dataclass(frozen=True)
class Extraction:
    """Two checkpoints, how their tensors pair up, and what of them becomes an artifact.

    Attributes:
        notes: on the pairs, one sentence each.
        codec: of delta and reverse; None for a mask only.
        masked: whether it has a mask.
    """

    source: Checkpoint
    target: Checkpoint
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    rule: Rule
    codec: Codec | None
    reversible: bool
    masked: bool = True

    @contextmanager
    def writing(self, root: Path, jobs: int) -> Iterator[Writing]:
        """Write an artifact inside, to which diffs of all spans are added in order; room is checked before.

        Leaving it before :meth:`Writing.finish`, or with an exception, leaves nothing behind.
        """
        needed = estimated_bytes(self.pairs, mask_only=self.codec is None, reversible=self.reversible)
        parts: list[PartName] = ["mask"] if self.masked else []
        parts += ["delta"] if self.codec else []
        parts += ["reverse"] if self.reversible else []
        with artifact_space(root, needed), ArtifactWriter(root, parts, jobs=jobs) as writer:
            yield Writing(writer, self)


class Writing:
    """Writes diffs in order, and opaque or wide tensors whole once they have turned out to differ."""

    def __init__(self, writer: ArtifactWriter, extraction: Extraction) -> None:
        self._writer, self._of = writer, extraction
        self._any_differs = self._differs = False

    def add(self, diff: BlockDiff) -> None:
        """The next span."""
        (pair, start, stop), writer = diff.span, self._writer
        if start == 0:
            role, layer = role_of(pair.name), layer_of(pair.name)
            writer.begin(pair.name, role=role, layer=layer, source=pair.source, target=pair.recorded_target)
            self._differs = False
        if diff.block is not None and stop:
            writer.add_block(diff.block)
        writer.add_leaves(diff.source_leaves, diff.target_leaves)
        if diff.target_bytes:
            writer.add_whole(diff.target_bytes)
        if diff.source_bytes:
            writer.add_reverse_whole(diff.source_bytes)
        self._differs |= diff.differs
        if stop == pair.numel:
            self._end(pair, is_whole=bool(diff.target_bytes))

    def _end(self, pair: Pair, *, is_whole: bool) -> None:
        of = self._of
        if self._differs and of.codec and pair.stored_as in (StoredAs.WIDE, StoredAs.OPAQUE) and not is_whole:
            # Only now is it known that they differ, so the few tensors of this kind are read a second time.
            for start, stop in blocks_ahead(pair.name, pair.numel, of.target):
                self._writer.add_whole(of.target.read(pair.name, start, stop).tobytes())
                if of.reversible:
                    self._writer.add_reverse_whole(of.source.read(pair.name, start, stop).tobytes())
        self._any_differs |= self._differs
        self._writer.end(pair.aliases)

    def finish(self, provenance: Provenance, *, with_code: bool = False) -> ExtractResult:
        """Add small files, and publish the artifact under its digest; arguments as for :func:`extract`."""
        of, writer = self._of, self._writer
        code = (
            add_files(writer, of.source, of.target, reversible=of.reversible, with_code=with_code) if of.codec else ()
        )
        side = side_of(of.source, writer.tensors, "source", cast="")
        require_root(of.source, side, provenance.source_root)
        found = {name: row.target_fingerprint for row in writer.tensors for name in (row.name, *row.aliases)}
        checks = provenance.checks
        if wrong := [name for name in found if checks.get(name, found[name]) != found[name]]:
            raise CorruptError(f"tensor {wrong[0]}", "does not match its checksum", hint=OTHER_VALUES)
        is_cast = any(pair.stored_as is StoredAs.CAST for pair in of.pairs)
        digest = writer.finish(
            kind="delta" if of.codec else "mask",
            rule=of.rule.name,
            exact=of.codec is not None and of.rule.keeps_target,
            source=side,
            target=side_of(of.target, writer.tensors, "target", cast="BF16" if is_cast else ""),
            parents=provenance.parents,
            recipe=provenance.recipe,
            codec=of.codec.name if of.codec else "",
        )
        opening = [
            f"{side}: {note}" for side, c in (("source", of.source), ("target", of.target)) for note in c.remarks
        ]
        notes = (*opening, *of.notes, *_notes(writer.tensors, of.rule, of.codec is None, self._any_differs))
        if code and not with_code:
            return ExtractResult(digest, (*notes, left_out_note(code)), code_left_out=code)
        if code:
            notes = (*notes, f"takes along what can run code: {', '.join(code)}")
        return ExtractResult(digest, notes, code_files=code)


def require_root(checkpoint: Checkpoint, side: Side, root: str) -> None:
    """Refuse a source that has turned out to have another root than this; an empty one allows any."""
    if root and side.root != root:
        raise PairMismatchError(
            f"the source {checkpoint.path} has root {side.root[:19]}, and the update is of root {root[:19]}",
            hint="give the source checkpoint that the update was made on",
        )


def side_of(checkpoint: Checkpoint, rows: Iterable[Tensor], side: str, *, cast: Literal["", "BF16"]) -> Side:
    """The identity of a checkpoint, from the finished tensor table; ``cast`` if that holds a wider one's bf16 cast."""
    dtypes: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        dtypes[tensor.dtype] += tensor.numel
    return Side(
        root=fingerprint_root(side_tensors(rows, side)),
        hub=checkpoint.hub,
        params=sum(t.numel for t in checkpoint.tensors.values()),
        tensors=len(checkpoint.tensors),
        dtypes=dict(dtypes),
        cast=cast,
    )


def _notes(rows: Sequence[Tensor], rule: Rule, mask_only: bool, any_differs: bool) -> tuple[str, ...]:
    notes: list[str] = []
    if not any_differs and rule.keeps_target:
        notes.append("the two checkpoints are identical: nothing moved")
    odd = [row for row in rows if row.nan or row.inf]
    if odd:
        nan, inf = (sum(getattr(row, kind) for row in odd) for kind in ("nan", "inf"))
        notes.append(
            f"the target has {nan:,} NaN and {inf:,} infinite values in {counted(len(odd), 'tensor')}, "
            f"the first in {odd[0].name}: the run might have diverged, or a file might be damaged"
        )
    if not mask_only and not rule.keeps_target:
        notes.append(f"rule {rule.name} drops small changes: applying the delta does not give the target")
    notes += [f"{', '.join(row.aliases)} tied to {row.name}: stored once" for row in rows if row.aliases]
    kept = [row.name for row in rows if row.whole_bytes and row.numel]
    if kept:
        notes.append(f"{counted(len(kept), 'tensor', 'is')} wider than 16 bits and stored whole, such as {kept[0]}")
    return tuple(notes)


def add_files(
    writer: ArtifactWriter, source: Checkpoint, target: Checkpoint, *, reversible: bool, with_code: bool
) -> tuple[str, ...]:
    """Write the small files of the target that the source lacks or has otherwise; with ``reversible`` also back.

    Returns the names of those that can run code, which are written only ``with_code``.
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
    return tuple(sorted(code))


def _differing_files(checkpoint: Checkpoint, reference: Checkpoint) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Small files of ``checkpoint`` that ``reference`` lacks or has with other bytes, and those bytes."""
    known = reference.small_files()
    for name, path in sorted(checkpoint.small_files().items()):
        if name not in known:
            yield name, path.read_bytes(), None
        elif not same_content(path, known[name]):
            yield name, path.read_bytes(), known[name].read_bytes()
