"""The contract of exchange formats: an artifact written as another tool reads it, and what that tool wrote read back.

A format is one file here with two functions, and one line in :data:`maskreg.exchange.FORMATS`. It holds values
or a mask. Values come back as the target checkpoint, computed from the source while it is read; so extraction makes of
it the artifact that it makes of any pair.

What maskreg writes beside an update lets it come back as the artifact that it was. It is one JSON text, in
the format's place for metadata; other tools skip it::

    {"schema": "maskreg.exchange/1", "digest": "sha256:...", "kind": "delta", "rule": "exact",
     "source": {"root": ..., "hub": ...}, "target": {...}, "checks": {"model.norm.weight": "32 hex digits", ...}}

Nothing of it is believed: each tensor that is read is held against its check, and the source against its root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Manifest, Sha256
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.opening import HubId
from maskreg.digest import Digest
from maskreg.document import canonical, checked, parse_object
from maskreg.errors import BadRuleError, FormatError
from maskreg.limits import LIMITS
from maskreg.ref import printable
from maskreg.tensors.info import shown
from maskreg.tensors.rules import parse_rule

KEY = "maskreg"
"""The key of the text in a format's metadata."""

OTHER_VALUES = "give the source checkpoint that the update was made on, or copy the update again"
"""The next step where patching gives other values than the update records."""

Check = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
_HUB = Annotated[str, msgspec.Meta(max_length=512)]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a checkpoint: its root, and its hub id if it has one."""

    root: Sha256
    hub: _HUB = ""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where an update in another format comes from.

    Attributes:
        removed_files: small files of the source that the target lacks.
        checks: by tensor name, the fingerprint of the target's tensor; of masks the xxh3-128 of its packed bits.
    """

    schema: Literal["maskreg.exchange/1"]
    digest: Sha256
    kind: Literal["mask", "delta", "baseline"]
    rule: str
    source: Origin
    target: Origin
    reversible: bool = False
    removed_files: tuple[str, ...] = ()
    parents: tuple[Sha256, ...] = ()
    recipe: dict[str, Any] | None = None
    checks: dict[str, Check] = {}


def lineage_of(
    digest: Digest, manifest: Manifest, checks: Mapping[str, str], *, removed_files: tuple[str, ...] = ()
) -> str:
    """The text that says where an artifact's update comes from."""
    lineage = Lineage(
        schema="maskreg.exchange/1",
        digest=str(digest),
        kind=manifest.kind,  # type: ignore[arg-type]  # an analysis is refused before
        rule=manifest.rule,
        source=Origin(root=manifest.source.root, hub=manifest.source.hub),
        target=Origin(root=manifest.target.root, hub=manifest.target.hub),
        reversible="reverse" in manifest.parts,
        removed_files=removed_files,
        parents=manifest.parents,
        recipe=manifest.recipe,
        checks=dict(checks),
    )
    return canonical(msgspec.to_builtins(lineage)).decode()


def parse_lineage(text: Any, document: str) -> Lineage | None:
    """Read the text back."""
    if text is None:
        return None
    if not isinstance(text, str) or printable(text) != text:
        raise FormatError(f"{document}: {KEY}: not a text that can be printed")
    value = parse_object(
        text.encode(),
        f"{document}: {KEY}",
        max_bytes=LIMITS.tensors_json_bytes,
        max_values=4 * LIMITS.tensors + LIMITS.json_values,
    )
    lineage = checked(Lineage, value, f"{document}: {KEY}")
    for hub in (lineage.source.hub, lineage.target.hub):
        if hub and HubId.parse(hub) is None:
            raise FormatError(f"{document}: {KEY}: {shown(hub)} is not a hub id")
    try:
        parse_rule(lineage.rule)
    except BadRuleError as error:
        raise FormatError(f"{document}: {KEY}: {error.message}") from error
    return lineage


@dataclass(frozen=True)
class Written:
    """What a format has written.

    Attributes:
        coordinates: values in it, or coordinates of its masks.
        kept_files: files that were in the output's folder, and that ``force`` left there.
    """

    out: Path
    tensors: int
    coordinates: int
    bytes: int
    kept_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Values:
    """An update that a format holds, on the source that was given."""

    target: Checkpoint
    lineage: Lineage | None = None
    notes: tuple[str, ...] = ()


BoolBlocks = Callable[[], "Iterator[npt.NDArray[np.bool_]]"]
"""Reads the mask of one tensor: its blocks in order."""


@dataclass(frozen=True)
class Masks:
    """Masks that a format holds, of the source that was given.

    Attributes:
        tensors: what reads the mask of each tensor, by name; a tensor that is not here has no coordinates.
    """

    tensors: Mapping[str, BoolBlocks]
    lineage: Lineage | None = None
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """Opens what a format holds; files stay open until the ``with`` that the caller is in ends."""

    def __call__(self, path: Path, source: Checkpoint, closing: Callable[[Any], Any]) -> Values | Masks:
        """Open a file or folder, checking everything but the values.

        Raises:
            DataError: it breaks the format, exceeds a limit or does not fit the source; names the tensor.
        """


@dataclass(frozen=True)
class Format:
    """One line in the table of exchange formats.

    Attributes:
        write: writes ``(update, out, force=..., **options)``; :class:`Written`.
        options: options of ``write``, with their defaults.
    """

    name: str
    holds: Literal["values", "mask"]
    accepts: str
    write: Callable[..., Written]
    read: Reader
    options: Mapping[str, Any] = field(default_factory=dict)
