"""One file out, one file in: the same bytes every time, and nothing else is taken."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskreg.artifact.layout import artifact_prefix
from maskreg.digest import Digest, sealed
from maskreg.errors import ConflictError, CorruptError, DataError, FormatError, LimitError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.archive import REF as REF_MEMBER
from maskreg.registry.archive import export_file, import_file
from maskreg.registry.pull import pull
from maskreg.registry.push import push
from maskreg.registry.tags import annotate
from maskreg.registry.verify import verify
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF, new_local


def exported(registry: Registry, ref: Ref = REF) -> bytes:
    out = io.BytesIO()
    assert export_file(registry, ref, out).size == len(out.getvalue())
    return out.getvalue()


def read(registry: Registry, data: bytes) -> None:
    import_file(registry, io.BytesIO(data))


def assert_untouched(registry: Registry) -> None:
    assert registry.root is not None
    assert [p for p in registry.root.rglob("*") if p.is_file() and p.name != "catalog.db"] == []


def test_there_and_back(local: Registry, digest: Digest, empty: Registry) -> None:
    imported = import_file(empty, io.BytesIO(exported(local)))
    assert imported.parts == {"mask", "delta", "reverse"}
    assert (imported.ref, imported.digest) == (REF, digest)
    entry = empty.live(REF)
    assert (entry.ref, entry.digest, entry.card, entry.by) == (REF, digest, CARD, "bob@there")
    assert verify(empty).ok
    assert exported(empty) == exported(local)
    assert empty.root is not None
    assert not [p for p in (empty.root / "incoming").rglob("*") if p.is_file()]


def test_the_bytes_are_the_same_and_any_tar_reads_them(local: Registry, digest: Digest) -> None:
    data = exported(local)
    assert data == exported(local)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = tar.getmembers()
        assert [m.name for m in members[:2]] == ["manifest.json", "ref.json"]
        assert [m.name for m in members[2:]] == sorted(m.name for m in members[2:])
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}
        names = {o.key for o in local.artifact(digest).manifest.objects}
        assert {m.name for m in members[2:]} == names


def test_a_pinned_reference_and_another_name(local: Registry, digest: Digest, empty: Registry) -> None:
    data = exported(local, replace(REF, digest=digest))
    imported = import_file(empty, io.BytesIO(data), ref=Ref.parse("mine:v1"))
    assert str(imported.ref) == "mine:v1"
    assert empty.live(imported.ref).digest == digest
    with pytest.raises(NotFoundError):
        empty.resolve(REF)


def test_only_parts_that_are_here_travel_and_the_rest_can_come_later(
    local: Registry, digest: Digest, remote: Registry, empty: Registry, tmp_path: Path
) -> None:
    push(local, remote, REF)
    with new_local(tmp_path / "third") as third:
        pull(third, remote, REF, parts=("mask",))
        assert import_file(empty, io.BytesIO(exported(third))).parts == {"mask"}
    assert empty.artifact(digest).present() == {"mask"}
    imported = import_file(empty, io.BytesIO(exported(local)))
    assert empty.artifact(digest).present() == {"mask", "delta", "reverse"}
    assert 0 < imported.objects < len(empty.artifact(digest).manifest.objects)


def test_long_and_foreign_file_names_travel(local: Registry, empty: Registry) -> None:
    assert local.root is not None
    files = {"x" * 180 + ".json": b"{}", "résumé.txt": b"text"}
    digest = write(local.root, pair(3), files=files)
    local.publish(Ref.parse("names"), digest, card=CARD)
    read(empty, exported(local, Ref.parse("names")))
    assert empty.artifact(digest).files() == files


def test_through_a_pipe(local: Registry, digest: Digest, empty: Registry) -> None:
    reading, writing = os.pipe()

    def send() -> None:
        with os.fdopen(writing, "wb") as out:
            export_file(local, REF, out)

    sender = threading.Thread(target=send)
    sender.start()
    # Unbuffered: a read gives what is there, not what was asked for.
    with os.fdopen(reading, "rb", buffering=0) as stream:
        import_file(empty, stream)
    sender.join()
    assert verify(empty).ok


def test_a_tag_that_points_elsewhere_stays(local: Registry, digest: Digest, empty: Registry) -> None:
    assert empty.root is not None
    other = write(empty.root, pair(1))
    empty.publish(REF, other, card=CARD)
    with pytest.raises(ConflictError) as caught:
        read(empty, exported(local))
    assert other[:19] in caught.value.message
    assert digest[:19] in caught.value.message
    assert empty.resolve(REF).digest == other


def test_what_is_said_here_stays(local: Registry, digest: Digest, empty: Registry) -> None:
    data = exported(local)
    read(empty, data)
    annotate(empty, REF, family="llama")
    read(empty, data)
    assert empty.resolve(REF).card.family == "llama"


def test_a_damaged_object_here_is_replaced(local: Registry, digest: Digest, empty: Registry) -> None:
    data = exported(local)
    read(empty, data)
    empty.store.put(artifact_prefix(digest) + "files/config.json", b"[]")
    assert import_file(empty, io.BytesIO(data)).objects == 1
    assert verify(empty).ok


def test_a_damaged_object_is_never_written(local: Registry, digest: Digest) -> None:
    local.store.put(artifact_prefix(digest) + "files/config.json", b"[]")
    with pytest.raises(CorruptError, match=r"files/config\.json"):
        exported(local)


# Bad files


def members(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(m, tar.extractfile(m).read()) for m in tar.getmembers()]  # type: ignore[union-attr]


def packed(parts: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    for info, data in parts:
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        out.write(header + data + bytes(-len(data) % 512))
    return out.getvalue() + bytes(1024)


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


Parts = list[tuple[tarfile.TarInfo, bytes]]

CHANGES: dict[str, tuple[Callable[[Parts], Parts], type[DataError]]] = {
    "nothing": (lambda m: [], CorruptError),
    "no manifest": (lambda m: m[1:], FormatError),
    "no ref": (lambda m: [m[0], *m[2:]], FormatError),
    "no objects": (lambda m: m[:2], CorruptError),
    "an object less": (lambda m: m[:-1], CorruptError),
    "an object less in the middle": (lambda m: m[:4] + m[5:], CorruptError),
    "an object twice": (lambda m: [*m[:4], m[3], *m[4:]], FormatError),
    "two objects swapped": (lambda m: [*m[:3], m[4], m[3], *m[5:]], FormatError),
    "one too many": (lambda m: [*m, member("zzz", b"x")], FormatError),
    "the manifest twice": (lambda m: [*m, m[0]], FormatError),
    "out of the artifact": (lambda m: [*m, member("../../outside", b"x")], FormatError),
    "a symbolic link": (lambda m: [*m, member("data.zarr", b"", tarfile.SYMTYPE, "/etc")], FormatError),
    "a folder": (lambda m: [*m[:2], member("data.zarr", b"", tarfile.DIRTYPE), *m[2:]], FormatError),
    "a sparse file": (lambda m: [*m, member("files/sparse", b"", tarfile.GNUTYPE_SPARSE)], FormatError),
    "other contents": (lambda m: [*m[:-1], member(m[-1][0].name, m[-1][1][:-1] + b"!")], CorruptError),
    "cut contents": (lambda m: [*m[:-1], member(m[-1][0].name, m[-1][1][:-1])], CorruptError),
    "another manifest": (lambda m: [member("manifest.json", m[0][1] + b" "), *m[1:]], CorruptError),
    "a manifest of nothing": (lambda m: [member("manifest.json", b"{}"), *m[1:]], FormatError),
    "a ref of nothing": (lambda m: [m[0], member(REF_MEMBER, b"{}"), *m[2:]], CorruptError),
    "a bad name": (lambda m: [m[0], renamed(m[1][1], "../up"), *m[2:]], FormatError),
}


def renamed(record: bytes, name: str) -> tuple[tarfile.TarInfo, bytes]:
    import json

    return member(REF_MEMBER, sealed({**json.loads(record), "ref": name}))


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_export_never_writes(local: Registry, digest: Digest, empty: Registry, change: str) -> None:
    tamper, error = CHANGES[change]
    with pytest.raises(error):
        read(empty, packed(tamper(members(exported(local)))))
    assert_untouched(empty)


@pytest.mark.parametrize("tail", [b"\0", bytes(512), b"more"])
def test_something_after_the_end(local: Registry, digest: Digest, empty: Registry, tail: bytes) -> None:
    with pytest.raises(FormatError, match="does not end"):
        read(empty, exported(local) + tail)
    assert_untouched(empty)


def test_members_that_promise_too_much_are_refused_before_they_are_read(empty: Registry) -> None:
    info = tarfile.TarInfo("manifest.json")
    for size in (LIMITS.manifest_bytes + 1, 1 << 40, (1 << 63) - 1):
        info.size = size
        with pytest.raises(LimitError):
            read(empty, info.tobuf(tarfile.GNU_FORMAT) + b"{}")
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE):
        info.type, info.size = kind, 1 << 30
        endless = Endless(info.tobuf(tarfile.GNU_FORMAT))
        with pytest.raises(DataError):
            import_file(empty, endless)  # type: ignore[arg-type]
        assert endless.read_bytes < 1 << 20


class Endless:
    """A stream that begins with a header, and goes on for ever."""

    def __init__(self, header: bytes) -> None:
        self.header = header
        self.read_bytes = 0

    def read(self, size: int) -> bytes:
        data = (self.header + b"x" * size)[:size]
        self.header = self.header[size:]
        self.read_bytes += size
        return data


@pytest.mark.parametrize("record", [b"20 size=99999999999\n", b"12 path=abc", b"9 path=a\n", b"12 path=\xff\xff\xff\n"])
def test_other_extended_headers_are_refused(empty: Registry, record: bytes) -> None:
    with pytest.raises(FormatError):
        read(empty, packed([member("x", record, tarfile.XHDTYPE), member("manifest.json", b"{}")]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_cut_or_flipped_anywhere(local: Registry, empty: Registry, digest: Digest, data: st.DataObject) -> None:
    whole = bytearray(exported(local))
    if data.draw(st.booleans(), "cut"):
        damaged = bytes(whole[: data.draw(st.integers(0, len(whole) - 1), "length")])
    else:
        # Owner, mode and time in a header say nothing; their checksum still has to be right.
        place = data.draw(st.integers(0, len(whole) - 1), "place")
        whole[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
        damaged = bytes(whole)
    if _same_members(damaged, exported(local)):
        return
    with pytest.raises(DataError):
        read(empty, damaged)
    assert_untouched(empty)


def _same_members(one: bytes, other: bytes) -> bool:
    # A flipped bit may leave every name, size and byte as it was (two ways to write one checksum).
    try:
        return len(one) == len(other) and [(m.name, d) for m, d in members(one)] == [
            (m.name, d) for m, d in members(other)
        ]
    except (tarfile.TarError, UnicodeDecodeError, AttributeError, EOFError):
        return False


def test_a_file_of_the_mask_alone_needs_room_for_it_alone(
    local: Registry, remote: Registry, digest: Digest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(local, remote, REF)
    wanted: list[int] = []
    with new_local(tmp_path / "masks") as masks, new_local(tmp_path / "third") as third:
        pull(masks, remote, REF, parts=("mask",))
        data = exported(masks)
        monkeypatch.setattr("maskreg.registry.archive.check_space", lambda root, needed: wanted.append(needed))
        imported = import_file(third, io.BytesIO(data))
    assert sum(wanted) == imported.bytes < local.artifact(digest).manifest.size
