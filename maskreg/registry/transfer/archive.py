"""One artifact as one file: a POSIX tar, the same bytes for the same artifact and card.

Members, in this order: ``manifest.json``, ``ref.json`` (name, digest and card, sealed, because no manifest
covers it), then every object of the parts that are present, in key order. Times, owners and modes are
fixed. The reader accepts nothing else. It reads the file once from front to back, so that it may come through a
pipe, and compares every byte with the manifest before anything becomes visible.
"""

from __future__ import annotations

import socket
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from typing import BinaryIO

from maskreg.artifact.layout import MANIFEST, part_of
from maskreg.artifact.manifest import Manifest, Object, load_manifest
from maskreg.artifact.presence import listing, matches, objects_of, read_manifest, read_object, whole_parts
from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.disk import filling
from maskreg.errors import (
    BadRefError,
    ConflictError,
    CorruptError,
    DataError,
    FormatError,
    LimitError,
    PartAbsentError,
    UsageError,
)
from maskreg.limits import LIMITS, Limits
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.registry.registry import Registry
from maskreg.registry.settling.settle import Delivery, settle
from maskreg.registry.transfer.landing import Landing, check_space
from maskreg.result import Result
from maskreg.store.entry import RefEntry
from maskreg.words import counted

SCHEMA = "maskreg.export/1"
REF = "ref.json"

_BLOCK = 512
_MAX_PAX_BYTES = 8 << 10
_END = bytes(2 * _BLOCK)
_FILE = "the file"
_HINT = "export writes such a file"


@dataclass(frozen=True)
class Exported(Result):
    """An artifact that was written to a file.

    Attributes:
        ref: its name, which is in the file too.
        digest: the artifact.
        parts: the parts that are in the file.
        size: size of the file in bytes.
        path: the file; None when it was a stream.
    """

    ref: Ref
    digest: Digest
    parts: frozenset[str]
    size: int
    path: Path | None = None


@dataclass(frozen=True)
class Imported(Result):
    """An artifact that was read from a file.

    Attributes:
        ref: its name in the local registry.
        digest: the artifact.
        parts: the parts that were in the file.
        objects: objects that were not in the local registry yet.
        bytes: their size.
    """

    ref: Ref
    digest: Digest
    parts: frozenset[str]
    objects: int
    bytes: int


def export_file(registry: Registry, ref: Ref, out: BinaryIO, *, progress: Progress = SILENT) -> Exported:
    """Write an artifact into one file.

    Args:
        registry: where it is.
        ref: what to write; its tag's name and card go with it.
        out: written from front to back, without seeking; may be a pipe.
        progress: progress callback, in bytes written.

    Raises:
        NotFoundError: there is no such artifact.
        CorruptError: it is damaged; the file is then incomplete, which ``import_file`` detects.
    """
    return packing(registry, ref).write(out, progress)


@dataclass(frozen=True)
class Packing:
    """An artifact that can be written to a file.

    Attributes:
        registry: where it is.
        ref: its name, with the tag.
        digest: the artifact.
        parts: those that are present.
        head: the members in front of the objects, by name.
        entries: the objects.
    """

    registry: Registry
    ref: Ref
    digest: Digest
    parts: frozenset[str]
    head: Mapping[str, bytes]
    entries: Sequence[Object]

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        sizes = [(name, len(data)) for name, data in self.head.items()]
        sizes += [(entry.key, entry.size) for entry in self.entries]
        return len(_END) + sum(len(_header(name, size)) + size + -size % _BLOCK for name, size in sizes)

    def write(self, out: BinaryIO, progress: Progress) -> Exported:
        """Write the file; see :func:`export_file`."""
        progress.start("export", sum(entry.size for entry in self.entries))
        for name, data in self.head.items():
            _write(out, name, data)
        for entry in self.entries:
            _write(out, entry.key, read_object(self.registry.store, self.digest, entry))
            progress.advance(entry.size)
        out.write(_END)
        return Exported(self.ref, self.digest, self.parts, self.size)


def packing(registry: Registry, ref: Ref) -> Packing:
    """What a file of an artifact would hold.

    Raises:
        NotFoundError: there is no such artifact.
        CorruptError: its manifest is damaged.
    """
    resolved = registry.resolve(ref)
    data, manifest = read_manifest(registry.store, resolved.digest)
    parts = whole_parts(registry.store, resolved.digest, manifest, listing(registry.store, resolved.digest))
    if not parts:
        raise PartAbsentError(f"no part of {ref} is in {registry.name}", unpulled=ref)
    name = ref.with_tag(ref.tag)
    record = {"schema": SCHEMA, "ref": str(name), "digest": resolved.digest, "card": resolved.card.to_json()}
    head = {MANIFEST: data, REF: sealed(record)}
    return Packing(registry, name, resolved.digest, parts, head, objects_of(manifest, parts))


def import_file(
    registry: Registry,
    stream: BinaryIO,
    *,
    ref: Ref | None = None,
    progress: Progress = SILENT,
    limits: Limits = LIMITS,
) -> Imported:
    """Read an artifact from one file into a local registry.

    Args:
        registry: where it goes; a registry in a directory.
        stream: read from front to back; may be a pipe. It has to end with the artifact.
        ref: the name to give; the one in the file when left out.
        progress: progress callback, in bytes read.
        limits: upper bounds, checked before memory is reserved.

    Raises:
        FormatError: ``export_file`` does not write such a file: another order, an extra or repeated member,
            a link, a path that leaves the artifact, trailing data.
        CorruptError: bytes differ from the manifest, or the file is cut short. Nothing became visible.
        LimitError: a member is larger than allowed.
        ConflictError: the local tag points to another artifact.
    """
    if registry.root is None:
        raise UsageError("files can only be imported into a registry in a directory")
    members = _members(stream, limits)
    with _naming_file(stream):
        _, data = _expect(members, MANIFEST)
        digest = Digest.of(data)
        manifest = load_manifest(data, digest, limits)
        name, card = _parse_ref(_expect(members, REF)[1], digest, limits)
    name = ref.with_tag(ref.tag) if ref else name
    head = registry.head(name)
    _may_set(name, head, digest)
    progress.start("import", manifest.size)
    visit = f"{socket.gethostname()}-{getpid()}-{uuid.uuid4().hex[:12]}"
    landing = Landing(registry.store, digest, visit)  # type: ignore[arg-type]
    try:
        with (
            filling(registry.root, manifest.size, what="the artifact", registry=str(registry.root)),
            _naming_file(stream),
        ):
            parts = _land(members, manifest, landing, registry.root, progress)
        needed = objects_of(manifest, parts)
        fresh = _damaged_or_absent(registry, digest, needed)

        def set_tag() -> RefEntry:
            # The card of an artifact that is already known under this name stays.
            if head and head.digest == digest:
                return head
            return registry.append(name, digest, card=card, after=head, action="import")

        settle(
            Delivery(registry.store, digest, data, needed),
            lambda: landing.admit(fresh),
            set_tag,
            patience_s=registry.patience_s,
        )
    finally:
        landing.clear()
    return Imported(name, digest, parts, len(fresh), sum(o.size for o in fresh))


@contextmanager
def _naming_file(stream: BinaryIO) -> Iterator[None]:
    # Errors about the content say which file has it; a stream may have no name, or a number.
    try:
        yield
    except DataError as error:
        name = getattr(stream, "name", None)
        if isinstance(name, str):
            error.message = f"{name}: {error.message.removeprefix(f'{_FILE}: ')}"
            error.args = (error.message,)
        raise


def _may_set(name: Ref, head: RefEntry | None, digest: Digest) -> None:
    if head and head.digest is not None and head.digest != digest:
        raise ConflictError(
            f"{name} is {head.digest.short} locally, and the file holds {digest.short}",
            hint=f"choose another name, such as {name.with_tag('imported')}",
        )


def _land(
    members: Iterator[tuple[str, bytes]], manifest: Manifest, landing: Landing, root: Path, progress: Progress
) -> frozenset[str]:
    listed = {entry.key: entry for entry in manifest.objects}
    seen: list[str] = []
    for key, data in members:
        entry = listed.get(key)
        if entry is None:
            raise FormatError(f"{key}: the manifest lists no such object")
        if seen and key <= seen[-1]:
            raise FormatError(f"{key}: the objects are out of order, or one is repeated")
        if not matches(data, entry):
            raise CorruptError(key, "its bytes do not match the manifest's digest")
        if part_of(key) not in {part_of(before) for before in seen}:
            # The first object of a part announces the whole part.
            check_space(root, sum(o.size for o in manifest.objects if part_of(o.key) == part_of(key)))
        seen.append(key)
        landing.put(entry, data)
        progress.advance(entry.size)
    parts = frozenset(part_of(key) for key in seen) - {""}
    if not parts:
        raise CorruptError(MANIFEST, "the file holds no part of the artifact: it is cut short")
    present = set(seen)
    for entry in objects_of(manifest, parts):
        if entry.key not in present:
            raise CorruptError(entry.key, "missing in the file")
    return parts


def _damaged_or_absent(registry: Registry, digest: Digest, needed: list[Object]) -> list[Object]:
    entries = []
    for entry in needed:
        try:
            read_object(registry.store, digest, entry)
        except CorruptError:
            entries.append(entry)
    return entries


def _parse_ref(data: bytes, digest: Digest, limits: Limits) -> tuple[Ref, Card]:
    record = parse_sealed(data, REF, schema=SCHEMA, max_bytes=limits.ref_bytes)
    if record.get("digest") != digest:
        raise CorruptError(REF, f"it names another artifact than the manifest's, {digest.short}")
    try:
        name = Ref.parse(str(record.get("ref")))
    except BadRefError as error:
        raise FormatError(f"{REF}: {error.message}") from error
    return name.with_tag(name.tag), Card.from_json(record.get("card"))


# The subset of tar that export writes


def _write(out: BinaryIO, name: str, data: bytes) -> None:
    for piece in (_header(name, len(data)), data, bytes(-len(data) % _BLOCK)):
        out.write(piece)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _expect(members: Iterator[tuple[str, bytes]], name: str) -> tuple[str, bytes]:
    member = next(members, None)
    if member is None:
        raise CorruptError(name, "missing in the file")
    if member[0] != name:
        raise FormatError(f"{member[0]!r} where {name} was expected; this is not an exported artifact")
    return member


def _members(stream: BinaryIO, limits: Limits) -> Iterator[tuple[str, bytes]]:
    # tarfile's own reader follows links, reads headers of any size, and tolerates truncation.
    long_name = ""
    block = _first(stream)
    while True:
        block = block or _read(stream, _BLOCK)
        if block == bytes(_BLOCK):
            break
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise FormatError(f"not an exported artifact ({error})", hint=_HINT) from error
        block = b""
        if info.type == tarfile.XHDTYPE and not long_name:
            long_name = _pax_path(_body(stream, info.name, info.size, _MAX_PAX_BYTES))
            continue
        if info.type != tarfile.REGTYPE:
            raise FormatError(f"{info.name!r}: not a regular file; this is not an exported artifact")
        name, long_name = long_name or info.name, ""
        yield name, _body(stream, name, info.size, _max_bytes(name, limits))
    if long_name or _read(stream, _BLOCK) != bytes(_BLOCK) or stream.read(1):
        raise FormatError("the file does not end with the artifact")


def _max_bytes(name: str, limits: Limits) -> int:
    return {MANIFEST: limits.manifest_bytes, REF: limits.ref_bytes}.get(name, limits.object_bytes)


def _body(stream: BinaryIO, name: str, size: int, max_bytes: int) -> bytes:
    if not 0 <= size <= max_bytes:
        raise LimitError(f"{name!r}: {size} bytes; the limit is {max_bytes}")
    data = _read(stream, size)
    if any(_read(stream, -size % _BLOCK)):
        raise FormatError(f"{name!r}: there is data between the members")
    return data


def _first(stream: BinaryIO) -> bytes:
    # A file that ends before this may be anything.
    block = _up_to(stream, _BLOCK)
    if len(block) < _BLOCK:
        fault = f"it has only {counted(len(block), 'byte')}" if block else "it is empty"
        raise FormatError(f"{_FILE}: {fault}; this is not an exported artifact", hint=_HINT)
    return block


def _read(stream: BinaryIO, size: int) -> bytes:
    data = _up_to(stream, size)
    if len(data) < size:
        raise CorruptError(_FILE, "it is cut short")
    return data


def _up_to(stream: BinaryIO, size: int) -> bytes:
    # A pipe may return less than was requested; only its end returns nothing.
    pieces = []
    while size and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _pax_path(data: bytes) -> str:
    # One record, "LENGTH path=NAME\n": the only one that export writes.
    length, _, rest = data.partition(b" ")
    if length != str(len(data)).encode() or not rest.startswith(b"path=") or not rest.endswith(b"\n"):
        raise FormatError("an extended header with more than a path; this is not an exported artifact")
    try:
        return rest[len(b"path=") : -1].decode()
    except UnicodeDecodeError as error:
        raise FormatError("a member's name is not UTF-8") from error
