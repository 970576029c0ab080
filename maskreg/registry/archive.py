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
from typing import BinaryIO, cast

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
from maskreg.registry.settle import Settling
from maskreg.registry.transfer import Landing, check_space
from maskreg.result import Result
from maskreg.store.entry import RefEntry

SCHEMA = "maskreg.export/1"
REF = "ref.json"

_BLOCK = 512
_AHEAD = 64 << 10
"""Bytes of headers, and of what tarfile reads in advance, between two members."""

_END = bytes(2 * _BLOCK)
_FILE = "the file"


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
    """Write an artifact into one file."""
    return packing(registry, ref).write(out, progress)


@dataclass(frozen=True)
class Packing:
    """An artifact that can be written to a file."""

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
    """What a file of an artifact would hold."""
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
    """Read an artifact from one file into a local registry."""
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
        store, patience_s = registry.store, registry.patience_s
        with Settling(store, digest, data, needed, lambda: landing.admit(fresh), patience_s=patience_s):
            # The card of an artifact that is already known under this name stays.
            if not head or head.digest != digest:
                registry.append(name, digest, card=card, after=head, action="import")
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


class _Source:
    """A stream that tarfile reads, which stays within a budget and whose bytes are compared with what export writes.

    tarfile alone reads headers of any size, takes a damaged one for the end, and tolerates truncation.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._seen = bytearray()
        self._budget = 0

    def allow(self, size: int) -> None:
        """Let this many bytes be read beyond what has been compared."""
        self._budget = size

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, for tarfile."""
        data = self._stream.read(size)
        self._seen += data
        if len(self._seen) > self._budget:
            raise LimitError(f"{_FILE}: more than {self._budget} bytes before the next member")
        return data

    def expect(self, data: bytes) -> None:
        """Compare the next bytes with what export writes."""
        while len(self._seen) < len(data):
            if not (more := self._stream.read(len(data) - len(self._seen))):
                raise CorruptError(_FILE, "it is cut short")
            self._seen += more
        if self._seen[: len(data)] != data:
            raise FormatError("there is data between the members; this is not an exported artifact")
        del self._seen[: len(data)]

    def expect_end(self) -> None:
        """Compare the end with what export writes, and refuse what follows it."""
        try:
            self.expect(_END)
        except FormatError as error:
            raise FormatError("the file does not end with the artifact") from error
        if self._seen or self._stream.read(1):
            raise FormatError("the file does not end with the artifact")


def _members(stream: BinaryIO, limits: Limits) -> Iterator[tuple[str, bytes]]:
    source = _Source(stream)
    source.allow(_AHEAD)
    try:
        with tarfile.open(fileobj=cast("BinaryIO", source), mode="r|") as tar:
            for info in tar:
                name = info.name
                if info.type != tarfile.REGTYPE or info.pax_headers.keys() - {"path"}:
                    raise FormatError(f"{name!r}: not a regular file; this is not an exported artifact")
                max_bytes = {MANIFEST: limits.manifest_bytes, REF: limits.ref_bytes}.get(name, limits.object_bytes)
                if not 0 <= info.size <= max_bytes:
                    raise LimitError(f"{name!r}: {info.size} bytes; the limit is {max_bytes}")
                source.allow(_AHEAD + info.size)
                file = tar.extractfile(info)
                assert file is not None  # it is a regular file
                data = file.read()
                for piece in (_header(name, len(data)), data, bytes(-len(data) % _BLOCK)):
                    source.expect(piece)
                yield name, data
                source.allow(_AHEAD)
    except (tarfile.TarError, UnicodeError, EOFError) as error:
        if "end of data" in str(error):
            raise CorruptError(_FILE, "it is cut short") from error
        raise FormatError(f"{_FILE}: not an exported artifact ({error})", not_exported=True) from error
    source.expect_end()
