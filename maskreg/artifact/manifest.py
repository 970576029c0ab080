"""The manifest of an artifact: parsed and checked, and written in canonical form.

Keys that no struct here has are ignored: a later minor version can add some, and the digest covers them.

A *link* is a delta that stands on another artifact, whose target is its source. A training run that publishes its
weights again and again makes a chain of links. Each names the artifact that it stands on as its parent, so the digest
of the last one fixes all of them::

    base root R0 -> artifact A: R0 -> R1        an extraction; stands on nothing
                    link B:     R1 -> R2        parents: [A], recipe: {"kind": "link"}
                    link C:     R2 -> R3        parents: [B], recipe: {"kind": "link"}

That a link's source root is the target root of its parent is checked wherever a chain is walked; the roots alone say
which checkpoint a link applies to, the parent alone where the link below is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from maskreg.artifact.layout import part_of
from maskreg.digest import Digest
from maskreg.document import canonical, checked, parse_object
from maskreg.errors import BadRuleError, BrokenChainError, CorruptError, FormatError, LimitError
from maskreg.extras import upgrade_command
from maskreg.limits import LIMITS
from maskreg.ref import printable
from maskreg.store.base import is_clean
from maskreg.tensors.info import shown
from maskreg.tensors.rules import parse_rule
from maskreg.words import counted, percent

SCHEMA: Literal["maskreg.artifact/1"] = "maskreg.artifact/1"
ENCODER = "maskreg-5"
"""Identifies the encoder; changes whenever the same input would give other bytes."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
# \Z, since $ would also match before a newline at the end.
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
_DOCUMENTS = ("tensors.json", "analysis.json")
_FOLDERS = ("data.zarr", "files", "reverse_files")
PartName = Literal["mask", "delta", "reverse", "analysis"]
_PARTS_OF_KIND: dict[str, tuple[set[PartName], ...]] = {
    "mask": ({"mask"},),
    "baseline": ({"mask"},),
    "analysis": ({"analysis"},),
    # Links of a run have no mask, since squashing several gives theirs.
    "delta": ({"mask", "delta"}, {"mask", "delta", "reverse"}, {"delta"}, {"delta", "reverse"}),
}


class Object(msgspec.Struct, frozen=True, kw_only=True):
    """One stored file of an artifact: its key below the artifact, size in bytes, digest."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    size: Count
    sha256: Sha256


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of one checkpoint; never a path.

    Attributes:
        root: sha256 over every tensor's name, dtype, shape and fingerprint.
        hub: ``org/name@commit`` when known.
        cast: ``BF16`` when the artifact holds the bf16 cast of a wider checkpoint.
    """

    root: Sha256
    hub: str = ""
    params: Count
    tensors: Count
    dtypes: dict[str, Count]
    cast: Literal["", "BF16"] = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group of coordinates: how many there are, and how many moved."""

    numel: Count
    nnz: Count

    @property
    def density(self) -> float:
        """nnz / numel; 0 for an empty group."""
        return self.nnz / self.numel if self.numel else 0.0


class FfnRatios(msgspec.Struct, frozen=True, kw_only=True):
    """The three FFN ratios of the literature, each beside the parameter share and its lift.

    A lift of 1 means that the FFN moves just as its share of the compared parameters predicts.

    Attributes:
        param_share: FFN elements / compared elements.
        energy_share: FFN sum of squared differences / sum over all; None when nothing moved.
        density_lift: density / density of the whole mask.
    """

    param_share: float | None
    energy_share: float | None
    energy_lift: float | None
    density: float | None
    density_lift: float | None
    mask_share: float | None
    mask_lift: float | None


class Totals(Group, frozen=True, kw_only=True):
    """Sums over all tensors.

    Attributes:
        numel: coordinates that were compared.
        nnz: coordinates that moved under the rule.
        differing: coordinates whose stored bits differ (delta and reverse hold these).
        energy: sum of squared fp32 differences of the bf16 values, finite pairs only, six digits.
        nonfinite: pairs of which a side is NaN or infinite in bf16; the energy leaves them out.
        nan, inf: of the target's compared coordinates, those that are NaN, or infinite, in bf16.
    """

    differing: Count
    energy: float
    roles: dict[str, Group]
    layers: dict[str, Group]
    ffn: FfnRatios
    nonfinite: Count = 0
    nan: Count = 0
    inf: Count = 0


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an artifact: its codec, and how many objects and bytes it has."""

    codec: str
    objects: Count
    size: Count


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was computed and from what; its canonical bytes are the artifact's identity.

    Attributes:
        kind: ``mask``, ``delta`` (a mask and the values), ``baseline``, or ``analysis`` (figures about its parent).
        rule: the rule for "moved", as ``maskreg.tensors.rules.parse_rule`` reads it.
        exact: applying the delta gives the target's bytes (False under ``abs:TAU`` and for masks).
        source: the checkpoint that the delta is applied to.
        target: the checkpoint that applying it gives.
        parents: digests of artifacts that it was derived from.
        recipe: how the artifact was made: lineage. A baseline's kind and seed, an operation on masks, or a training
            run; None for a plain comparison of two checkpoints.
        objects: every object but the manifest itself, in key order.
    """

    schema: Literal["maskreg.artifact/1"]
    kind: Literal["mask", "delta", "baseline", "analysis"]
    encoder: str
    rule: str
    exact: bool
    source: Side
    target: Side
    parents: tuple[Sha256, ...] = ()
    recipe: dict[str, Any] | None = None
    totals: Totals
    parts: dict[PartName, Part]
    objects: tuple[Object, ...]

    @property
    def size(self) -> int:
        """Bytes of all objects together, the manifest left out."""
        return sum(o.size for o in self.objects)

    @property
    def summary(self) -> str:
        """How many coordinates moved, for people."""
        return f"{percent(self.totals.density)} of {counted(self.totals.numel, 'coordinate')} moved"

    def __repr__(self) -> str:
        return f"<Manifest: {self.kind}, {self.summary}, {counted(len(self.objects), 'object')}>"

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints: everything but the object table."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        del fields["objects"]
        return fields


_LEFT_OUT_WHEN_ZERO = ("nonfinite", "nan", "inf")


def dump_manifest(manifest: Manifest) -> bytes:
    """Canonical bytes of a manifest; their sha256 is the artifact's digest."""
    fields = msgspec.to_builtins(manifest)
    checked(Manifest, fields, "manifest.json")
    if manifest.recipe is None:
        del fields["recipe"]
    for name in _LEFT_OUT_WHEN_ZERO:
        if not fields["totals"][name]:
            del fields["totals"][name]
    return canonical(fields)


def load_manifest(data: bytes, digest: Digest) -> Manifest:
    """Check that ``data`` hashes to ``digest``, then parse it."""
    if Digest.of(data) != digest:
        raise CorruptError("manifest.json", f"its bytes hash to {Digest.of(data).short}, not {digest.short}")
    value = parse_object(data, "manifest.json", max_bytes=LIMITS.manifest_bytes)
    if value.get("schema") != SCHEMA:
        raise FormatError(f"manifest.json: schema {value.get('schema')!r} is not {SCHEMA}", hint=upgrade_command())
    text = data.decode()
    # Without an escape, what the texts hold is what the document holds; that is searched at once.
    if "\\" in text or printable(text) != text:
        _check_texts(value)
    manifest = checked(Manifest, value, "manifest.json")
    check_objects(manifest)
    _check_statements(manifest)
    return manifest


def check_objects(manifest: Manifest) -> None:
    """Check the object table: number, order, sizes, and that keys stay inside the artifact."""
    if len(manifest.objects) > LIMITS.objects:
        raise LimitError(f"manifest.json: {len(manifest.objects)} objects; the limit is {LIMITS.objects}")
    keys = [o.key for o in manifest.objects]
    if keys != sorted(set(keys)):
        raise FormatError("manifest.json: object keys are not sorted and unique")
    for entry in manifest.objects:
        if entry.size > LIMITS.object_bytes:
            raise LimitError(f"manifest.json: {entry.key} has {entry.size} bytes; the limit is {LIMITS.object_bytes}")
        segments = entry.key.split("/")
        clean = is_clean(entry.key) and entry.key.isprintable()
        known = entry.key in _DOCUMENTS or segments[0] in _FOLDERS
        if not clean or not known:
            raise FormatError(f"manifest.json: {entry.key!r} is not a key of an artifact")


def part_entry(part: PartName, objects: tuple[Object, ...], codec: str) -> Part:
    """A part's row in the manifest: its codec, and how many objects and bytes it has."""
    sizes = [o.size for o in objects if part_of(o.key) == part]
    return Part(codec=codec, objects=len(sizes), size=sum(sizes))


def require_same(name: str, stated: object, computed: object, basis: str) -> None:
    """Refuse a figure of a manifest that is not what ``basis`` gives."""
    if stated != computed:
        raise FormatError(
            f"manifest.json: {name} is stated as {shown(stated)}; {basis} gives {shown(computed)}",
            hint="do not use this artifact; its publisher has to make it again",
        )


def _check_statements(manifest: Manifest) -> None:
    if manifest.parts.keys() not in _PARTS_OF_KIND[manifest.kind]:
        raise FormatError(f"manifest.json: kind {manifest.kind} with the parts {', '.join(sorted(manifest.parts))}")
    for entry in manifest.objects:
        if part_of(entry.key) not in {"", *manifest.parts}:
            raise FormatError(f"manifest.json: {entry.key} belongs to a part that this artifact does not have")
    for name, part in manifest.parts.items():
        require_same(f"parts.{name}", part, part_entry(name, manifest.objects, part.codec), "the object list")
    try:
        keeps_target = parse_rule(manifest.rule).keeps_target
    except BadRuleError as error:
        raise FormatError(f"manifest.json: {error.message}") from error
    exact = manifest.kind == "delta" and keeps_target
    require_same("exact", manifest.exact, exact, f"kind {manifest.kind} under rule {manifest.rule}")


def _check_texts(value: object) -> None:
    # Every text, also of keys that this version does not know: some command prints it, now or later.
    match value:
        case str() if printable(value) != value:
            raise FormatError(f"manifest.json: a text has a control character: {shown(value)}")
        case dict():
            for key, item in value.items():
                _check_texts(key)
                _check_texts(item)
        case list():
            for item in value:
                _check_texts(item)


LINK_RECIPE: Mapping[str, str] = {"kind": "link"}
"""The lineage recipe of a link."""


class Link(NamedTuple):
    """An artifact of a chain. ``manifest``: what was computed, and from what."""

    digest: Digest
    manifest: Manifest

    @property
    def before(self) -> str:
        """Root of the checkpoint that it applies to."""
        return self.manifest.source.root

    @property
    def after(self) -> str:
        """Root of the checkpoint that it gives."""
        return self.manifest.target.root

    @property
    def below(self) -> Digest | None:
        """The artifact that it stands on; None for the first of a chain."""
        return stands_on(self.manifest)

    def check_on(self, below: Link) -> None:
        """Refuse a parent whose target is not the source."""
        if self.before != below.after:
            raise BrokenChainError(
                f"link {self.digest.short} stands on {below.digest.short}, but applies to root "
                f"{Digest(self.before).short}, and that one gives root {Digest(below.after).short}",
                hint="publish the link again; a damaged chain cannot be followed",
            )


def stands_on(manifest: Manifest) -> Digest | None:
    """The artifact that a link stands on; None for an artifact that is no link."""
    is_link = manifest.kind == "delta" and manifest.recipe is not None and manifest.recipe.get("kind") == "link"
    return Digest(manifest.parents[0]) if is_link and manifest.parents else None
