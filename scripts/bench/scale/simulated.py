"""A store of very many small objects that are made up when somebody asks for them.

What is simulated: the listing and the bytes. What is real: each manifest hashes to its digest, each entry of the log
carries its seal, and all names are in key order, as a bucket lists them. What is written stays in a dictionary.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain

import numpy as np

from maskreg.artifact.layout import ARTIFACTS, MANIFEST
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.ref import Card, Ref
from maskreg.store import ObjectInfo
from maskreg.store.backrefs import NAMES, back_reference_key
from maskreg.store.entry import REFS, RefEntry, entry_key
from scripts.bench.service.filling import rows

_NUMBER = b"@000000000"
OLD = datetime.now(UTC) - timedelta(days=20)


class Simulated:
    """A registry in which each tag has the same number of entries, and each artifact one tag.

    Attributes:
        asked: requests, by kind; one for each thousand objects of a listing.

    Args:
        artifacts: how many.
        entries: of each tag.
        given_up: so many artifacts, spread evenly, lost their name.
    """

    url = "memory://simulated"

    def __init__(self, artifacts: int, entries: int, given_up: int) -> None:
        self.artifacts, self.entries = artifacts, entries
        self._apart = artifacts // given_up
        self._template = next(rows(1)).data.replace(b"@abc", _NUMBER, 1)
        digests = b"".join(hashlib.sha256(self._manifest(number)).digest() for number in range(artifacts))
        table = np.frombuffer(digests, "S32")
        # Numbers by digest, and digests by number; numpy drops trailing zeros only where it makes objects of them.
        self._order = np.argsort(table).astype(np.int32)
        self._digests = np.frombuffer(digests, np.uint8).reshape(artifacts, 32)
        self._sorted = table[self._order]
        self.asked: Counter[str] = Counter()
        self._written: dict[str, bytes] = {}
        self._deleted: set[str] = set()

    def ref(self, number: int) -> Ref:
        """The tag of an artifact, by its number; numbers and keys are in the same order."""
        return Ref(f"team-{number // 10_000:04d}", f"run-{number // 100 % 100:02d}", f"step-{number % 100:02d}")

    def digest(self, number: int) -> Digest:
        """The digest of an artifact, by its number."""
        return Digest(f"sha256:{self._digests[number].tobytes().hex()}")

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """An object."""
        self.asked["get"] += 1
        if key in self._written:
            return self._written[key]
        if key not in self._deleted and key.startswith(ARTIFACTS) and key.endswith(f"/{MANIFEST}"):
            return self._manifest(self._number(key.split("/")[2]))
        if key.startswith(REFS):
            _, project, name, tag, file = key.split("/")
            number = int(project[-4:]) * 10_000 + int(name[-2:]) * 100 + int(tag[-2:])
            if number < self.artifacts and int(file[:20]) <= self.entries:
                return self._entry(number, int(file[:20])).to_bytes()
        raise NotFoundError(f"there is no {key}")

    def head(self, key: str) -> ObjectInfo | None:
        """An object's size and time."""
        try:
            return ObjectInfo(key, len(self.get(key, max_bytes=1 << 20)), OLD)
        except NotFoundError:
            return None

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._written[key] = data

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none."""
        if self.head(key) is not None:
            return False
        self.put(key, data)
        return True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects in key order; those that are made up for one of the great folders, or for one artifact."""
        written = [
            ObjectInfo(k, len(d), datetime.now(UTC)) for k, d in sorted(self._written.items()) if k.startswith(prefix)
        ]
        infos = (info for info in self._made_up(prefix) if info.key not in self._deleted)
        return self._counted(chain(written, infos))

    def _counted(self, infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        # As a bucket answers: a thousand at a time.
        for number, info in enumerate(infos):
            if not number % 1_000:
                self.asked["list"] += 1
            yield info

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        for key in keys:
            if self._written.pop(key, None) is None:
                self._deleted.add(key)

    def close(self) -> None:
        """Do nothing."""

    def clock(self) -> datetime:
        """The time."""
        return datetime.now(UTC)

    def _made_up(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix == REFS:
            for number in range(self.artifacts):
                ref = self.ref(number)
                for n in range(1, self.entries + 1):
                    yield ObjectInfo(entry_key(ref, n), 600, OLD)
        elif prefix == ARTIFACTS:
            for digest in self._sorted_digests():
                yield ObjectInfo(f"{ARTIFACTS}{digest.hex}/{MANIFEST}", len(self._template), OLD)
        elif prefix == NAMES:
            for number, digest in zip(self._order, self._sorted_digests(), strict=True):
                yield ObjectInfo(back_reference_key(digest, self.ref(int(number)), 1), 200, OLD)
        elif prefix.startswith(ARTIFACTS):
            yield ObjectInfo(prefix + MANIFEST, len(self._template), OLD)

    def _sorted_digests(self) -> Iterator[Digest]:
        return (self.digest(int(number)) for number in self._order)

    def _number(self, name: str) -> int:
        place = int(np.searchsorted(self._sorted, np.bytes_(bytes.fromhex(name))))
        return int(self._order[place])

    def _manifest(self, number: int) -> bytes:
        return self._template.replace(_NUMBER, b"@%09d" % number)

    def _entry(self, number: int, n: int) -> RefEntry:
        ref = self.ref(number)
        is_removed = n == self.entries and number % self._apart == 0
        digest = self.digest(number)
        return RefEntry(
            *(ref.project, ref.name, ref.tag, n, None if is_removed else digest, is_removed, Card(), "ada"),
            at=OLD,
            write_id=f"{number:032x}",
            previous=digest if n > 1 else None,
            removed=digest if is_removed else None,
        )
