"""One verification of a registry: its identity, every tag's log, every artifact, and the catalog.

Damage is collected, and ends nothing. Each kind of thing is counted, so that a report says what it is about::

    identity      maskreg.json is there once a tag is, and can be read
    tags          every entry of every log: parsed, numbered without gaps, linked, immutable tags unmoved; of a remote
                  also whether they continue what this machine has seen of them
    artifacts     every object hashed and opened as readers do; with ``recount`` the mask's bits are counted
    guards        the records that garbage collection checks names by can be read
    catalog       the structure of its file, and the entries that it knows and the store has lost; its other rows can
                  be made again from the store
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from maskreg.artifact.analysis import read_analysis
from maskreg.artifact.layout import ARTIFACTS, MANIFEST, artifact_prefix, part_of
from maskreg.artifact.manifest import Manifest, Object
from maskreg.artifact.presence import begun_parts, listing, objects_of, read_manifest, read_object, strays
from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, FormatError, MaskregError, NotFoundError, UsageError
from maskreg.parallel import ordered
from maskreg.progress import SILENT, Progress, counting
from maskreg.ref import Ref
from maskreg.registry.identity import IDENTITY, IDENTITY_HINT, read_identity
from maskreg.registry.registry import Registry
from maskreg.result import Result, plain
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.chain import each_folder, removal
from maskreg.store.entry import NAMES, REFS, BackReference, RefEntry, ref_of


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong.

    Attributes:
        digest: the artifact; None for what belongs to none.
        names: live references that point to it, or the tag whose log it is.
        key: the object, as the store names it; ``catalog`` for the catalog's file.
        fault: what is wrong, for a message.
        error: the same as an error, with its facts.
    """

    digest: Digest | None
    names: tuple[str, ...]
    key: str
    fault: str
    error: MaskregError = field(compare=False)

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        error = self.error.to_json()
        names = {"digest": plain(self.digest), "names": list(self.names), "key": self.key, "fault": self.fault}
        return {**names, "code": error["code"], "hint": error["hint"], "facts": error["facts"]}


@dataclass(frozen=True)
class Verified(Result):
    """What was checked, and what is damaged.

    Attributes:
        tags: tags whose log was read.
        entries: entries in them.
        artifacts: how many were verified.
        objects: how many objects were hashed.
        bytes: their size.
        recounted: the mask's bits were counted and compared with the figures.
        catalog: the catalog was checked.
        damaged: everything that is damaged: by artifact and key, then tags, guards, identity and catalog.
        unchecked: why the catalog could not be checked though there is one; None when it was.
    """

    tags: int
    entries: int
    artifacts: int
    objects: int
    bytes: int
    recounted: bool
    catalog: bool
    damaged: tuple[Damage, ...]
    unchecked: MaskregError | None = None

    @property
    def ok(self) -> bool:
        """Whether everything was checked and nothing is damaged."""
        return not self.damaged and self.unchecked is None

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        why = self.unchecked
        unchecked = None if why is None else {"fault": why.message, "hint": why.hint, "facts": why.to_json()["facts"]}
        return {**super().to_json(), "unchecked": unchecked, "ok": self.ok}


def verify(
    registry: Registry,
    artifact: Ref | Digest | None = None,
    *,
    recount: bool = False,
    progress: Progress = SILENT,
    jobs: int = 4,
) -> Verified:
    """Check one artifact and the log of its tag, or everything that a registry holds.

    Damage is reported, and does not stop the rest from being verified.
    """
    # A damaged identity is part of the report.
    with suppress(FormatError):
        registry.check_format()
    if artifact is not None:
        return _One(registry, progress, jobs, recount).verify(artifact)
    return _Everything(registry, progress, jobs, recount).verify()


def joined(reports: Sequence[Verified]) -> Verified:
    """The reports of several artifacts, at least one, as one: counts are added, and damage is named once."""
    damaged = tuple(dict.fromkeys(damage for report in reports for damage in report.damaged))
    counts = ("tags", "entries", "artifacts", "objects", "bytes")
    sums: dict[str, Any] = {name: sum(getattr(report, name) for report in reports) for name in counts}
    return replace(reports[0], damaged=damaged, **sums)


_WRONG = (DataError, NotFoundError, UsageError)
# What a damaged or forged artifact raises. Others say that the store cannot be read now, and end the verification.


@dataclass
class _Looking:
    # What both kinds of verification do; what is wrong with one artifact does not keep it from the next.
    registry: Registry
    progress: Progress
    jobs: int
    counts: bool
    objects: int = 0
    bytes: int = 0

    def inspect(self, digest: Digest, names: tuple[str, ...], label: str, size: int) -> list[Damage]:
        self.progress.start(label, size)
        wrong = self._faults(digest)
        for error in wrong:
            self._say_repair(error, digest, names)
        return [_damage(digest, names, error) for error in wrong]

    def _head(self, ref: Ref) -> RefEntry | None:
        # Reading its log says what is wrong with one that cannot be read.
        with suppress(DataError):
            return self.registry.refs.head(replace(ref, digest=None))
        return None

    def _say_repair(self, error: CorruptError, digest: Digest, names: tuple[str, ...]) -> None:
        if not names:
            error.hint = error.hint or f"remove it: {removal(self.registry.url, error.key)}"
            error.facts.pop("artifact", None)
        elif self.registry.root is not None or "publish" in error.hint:
            error.facts = {**({} if error.hint else {"artifact": digest}), **error.facts, "ref": names[0]}
        else:
            # A push sends only what is missing.
            is_there = self.registry.store.head(error.key) is not None
            first = f"{removal(self.registry.url, error.key)}, then, " if is_there else ""
            error.hint = f"{first}from a registry that has it"
            error.facts = {"resend": names[0], "remote": self.registry.name}

    def _faults(self, digest: Digest) -> list[CorruptError]:
        """What is wrong with an artifact, by key.

        ::

            manifest        its digest, its texts, what it states about itself
            listing         objects that it does not list
            opening         tensor table and figures, Zarr metadata, lengths, codecs, file names, analysis
            every object    size and digest; shards as their array's metadata says
            counting        moved coordinates and fingerprints, with ``count``
        """
        prefix = artifact_prefix(digest)
        try:
            _, manifest = read_manifest(self.registry.store, digest)
            present = listing(self.registry.store, digest)
            # A part without any object was not pulled; one with some objects has to be complete.
            chosen = objects_of(manifest, begun_parts(self.registry.store, digest, manifest, present))
        except _WRONG as error:
            return [_at(prefix, None, error)]
        if not any(part_of(key) for key in present):
            return [
                CorruptError(
                    prefix + MANIFEST,
                    "no object of any part of the artifact is here",
                    hint="fetch or extract it again",
                    artifact=digest,
                )
            ]
        damaged = [CorruptError(prefix + key, "not an object of this artifact") for key in strays(manifest, present)]
        opened, unreadable = self._open(digest, manifest)
        damaged += self._hash(digest, chosen, opened)
        if not damaged and unreadable is None and opened is not None and self.counts:
            unreadable = self._recount(opened, manifest, damaged)
        # A damaged object is what keeps an artifact from opening, and is reported already.
        if unreadable is not None and not damaged:
            damaged.append(_at(prefix, manifest, unreadable))
        return sorted(damaged, key=lambda error: error.key)

    def _open(self, digest: Digest, manifest: Manifest) -> tuple[Artifact | None, MaskregError | None]:
        artifact = None
        try:
            artifact = Artifact(self.registry.store, digest, manifest)
            artifact.check_layout()
            if "analysis" in artifact.present():
                read_analysis(artifact)
        except _WRONG as error:
            return artifact, error
        return artifact, None

    def _hash(self, digest: Digest, objects: list[Object], opened: Artifact | None) -> list[CorruptError]:
        def read(entry: Object) -> CorruptError | None:
            try:
                if opened is None:
                    read_object(self.registry.store, digest, entry)
                else:
                    opened.check_object(entry)
            except _WRONG as error:
                key = artifact_prefix(digest) + entry.key
                return CorruptError(key, error.fault, hint=error.hint, **error.facts)
            return None

        damaged: list[CorruptError] = []
        with closing(ordered(read, objects, jobs=self.jobs)) as results:
            for entry, error in zip(objects, results, strict=True):
                damaged += [] if error is None else [error]
                self.objects += 1
                self.bytes += entry.size
                self.progress.advance(entry.size)
        return damaged

    def _recount(self, artifact: Artifact, manifest: Manifest, damaged: list[CorruptError]) -> MaskregError | None:
        try:
            for fault in recount(artifact, progress=self.progress, jobs=self.jobs):
                damaged.append(_at(artifact_prefix(artifact.digest), manifest, DataError(f"tensors.json: {fault}")))
        except _WRONG as error:
            return error
        return None


class _One(_Looking):
    # One artifact, or a tag and what it names.

    def verify(self, artifact: Ref | Digest) -> Verified:
        unresolved: list[CorruptError] = []
        digest = self._digest(artifact, unresolved)
        damaged: list[Damage] = []
        if digest is not None:
            present = listing(self.registry.store, digest)
            names = self._names(digest, artifact)
            if not isinstance(artifact, Ref) and not present and not names:
                raise NotFoundError(
                    f"artifact {digest.short} is not in {self.registry.url}", remote=self.registry.remote_name
                )
            damaged += self.inspect(digest, names, "verify", sum(info.size for info in present.values()))
        tags = entries = 0
        if isinstance(artifact, Ref):
            listed = list(each_folder(self.registry.store.list(f"{REFS}{artifact.path}/")))
            tags, entries = len(listed), sum(len(folder.entries) for folder in listed)
            damaged += _of_logs([*self._log(artifact), *unresolved])
        counts = (tags, entries, int(digest is not None), self.objects, self.bytes)
        return Verified(*counts, recounted=self.counts, catalog=False, damaged=tuple(damaged))

    def _digest(self, artifact: Ref | Digest, unresolved: list[CorruptError]) -> Digest | None:
        # What is wrong with the log of a tag is appended to unresolved; the artifact is then the one that it ends at.
        if not isinstance(artifact, Ref):
            return artifact
        try:
            return self.registry.resolve(artifact).digest
        except CorruptError as error:
            unresolved.append(error)
        if artifact.digest is not None:
            return artifact.digest
        head = self._head(artifact)
        return head.digest if head is not None else None

    def _names(self, digest: Digest, artifact: Ref | Digest) -> tuple[str, ...]:
        # By the back references, which are few: the whole log can be long.
        store = self.registry.store
        refs = {replace(artifact, digest=None)} if isinstance(artifact, Ref) else set()
        for info in store.list(f"{NAMES}{digest.hex}/"):
            if (reference := BackReference.of(info)) is not None:
                with suppress(DataError, NotFoundError):
                    refs.add(reference.read(store))
        heads = filter(None, map(self._head, refs))
        return tuple(sorted(str(head.ref) for head in heads if head.digest == digest))

    def _log(self, ref: Ref) -> list[CorruptError]:
        try:
            return self.registry.find_damage(ref)
        except FormatError:
            # Without an identity it is unknown what was seen of this registry; the log can be read.
            return self.registry.refs.find_damage(replace(ref, digest=None))


@dataclass
class _Everything(_Looking):
    # All that a registry holds.
    unchecked: MaskregError | None = None
    named: dict[Digest, list[str]] = field(default_factory=dict)

    def verify(self) -> Verified:
        """Look at everything, in the order of the module's text."""
        logs, tags, entries = self._logs()
        strays, sizes = self._list_artifacts()
        damaged: list[Damage] = []
        for number, digest in enumerate(sorted(sizes), 1):
            label = f"verify artifact {number:,} of {len(sizes):,}"
            found = self.inspect(digest, tuple(sorted(self.named.get(digest, ()))), label, sizes[digest])
            damaged += [] if found and self._has_gone(digest) else found
        damaged += [*_of_logs(logs), *strays, *self._guards(), *self._identity(bool(tags))]
        # A service looks after its catalog itself.
        if not self.registry.served:
            self.progress.start("check the catalog", 0)
            damaged += self._catalog()
        has_catalog = bool(self.registry.index.url) and not self.registry.served and self.unchecked is None
        return Verified(
            tags=tags,
            entries=entries,
            artifacts=len(sizes),
            objects=self.objects,
            bytes=self.bytes,
            recounted=self.counts,
            catalog=has_catalog,
            damaged=tuple(damaged),
            unchecked=self.unchecked,
        )

    def _logs(self) -> tuple[list[CorruptError], int, int]:
        damaged: list[CorruptError] = []
        tags = entries = 0
        walked = self.registry.refs.walk(damaged, self.registry.store.list(REFS))
        for folder, head in counting(self.progress, "read tags", walked):
            tags, entries = tags + 1, entries + len(folder.entries)
            if head is not None and head.digest is not None:
                self.named.setdefault(head.digest, []).append(str(head.ref))
        with suppress(FormatError):
            damaged += self.registry.find_untrusted()
        return damaged, tags, entries

    def _list_artifacts(self) -> tuple[list[Damage], dict[Digest, int]]:
        # What does not belong there, and the size of each artifact that is stored or named.
        strays, sizes = [], dict.fromkeys(self.named, 0)
        groups = groupby(self.registry.store.list(ARTIFACTS), lambda info: info.key.split("/")[2])
        for name, infos in counting(self.progress, "list artifacts", groups):
            objects = list(infos)
            try:
                digest = Digest(f"sha256:{name}")
            except ValueError:
                key = objects[0].key
                hint = f"look at it, then remove it: {removal(self.registry.url, key)}"
                strays.append(_damage(None, (), CorruptError(key, "not below the folder of an artifact", hint=hint)))
                continue
            # What has neither a manifest nor a name is the rest of an interrupted push.
            if any(info.key.endswith(f"/{name}/{MANIFEST}") for info in objects) or digest in self.named:
                sizes[digest] = sum(info.size for info in objects)
        return strays, sizes

    def _has_gone(self, digest: Digest) -> bool:
        """Whether an artifact has lost its names, and a collection has deleted it, since both were listed."""
        if self.registry.store.head(artifact_prefix(digest) + MANIFEST) is not None:
            return False
        heads = [self._head(Ref.parse(name)) for name in self.named.get(digest, ())]
        return all(head is not None and head.digest != digest for head in heads)

    def _guards(self) -> Iterator[Damage]:
        # The records that keep gc from deleting what has a name. A damaged one keeps an artifact.
        store = self.registry.store
        names = (info for info in store.list(NAMES) if not info.key.rpartition("/")[2].startswith("."))
        with closing(ordered(partial(_guard_fault, store), names, jobs=self.jobs)) as faults:
            for error in filter(None, counting(self.progress, "read back references", faults)):
                yield _damage(None, (), error)

    def _identity(self, used: bool) -> Iterator[Damage]:
        try:
            if not read_identity(self.registry.store) and used:
                fault = "missing, and the registry has tags"
                yield _damage(None, (), CorruptError(IDENTITY, fault, hint=IDENTITY_HINT))
        except FormatError as error:
            fault = error.message.rpartition(f"{IDENTITY}: ")[2]
            yield _damage(None, (), CorruptError(IDENTITY, fault, hint=IDENTITY_HINT))

    def _catalog(self) -> Iterator[Damage]:
        for error in self.registry.index.find_damage():
            # The catalog does not know which remote it belongs to.
            error.facts["remote"] = self.registry.remote_name
            if isinstance(error, CorruptError) and error.key.startswith(REFS):
                yield _damage(None, (str(ref_of(error.key)),), error)
            elif isinstance(error, DataError):
                yield Damage(None, (), "catalog", error.fault, error)
            else:
                # A database that is down, or refuses, says nothing about its file.
                self.unchecked = error


def _of_logs(damaged: Iterable[CorruptError]) -> Iterator[Damage]:
    ordered = sorted(damaged, key=lambda error: error.key)
    for error in {(error.key, error.message): error for error in ordered}.values():
        names = (str(ref_of(error.key)),) if error.key.startswith(REFS) else ()
        yield _damage(None, names, error)


def _damage(digest: Digest | None, names: tuple[str, ...], error: CorruptError) -> Damage:
    return Damage(digest, names, error.key, error.fault, error)


def _guard_fault(store: Store, info: ObjectInfo) -> CorruptError | None:
    if (reference := BackReference.of(info)) is None:
        hint = f"look at it, then remove it: {removal(store.url, info.key)}"
        return CorruptError(info.key, "not the key of a back reference", hint=hint)
    try:
        reference.read(store)
    except NotFoundError:
        return None  # a collection has just deleted it
    except CorruptError as error:
        return error
    return None


def _at(prefix: str, manifest: Manifest | None, error: MaskregError) -> CorruptError:
    """An error about a document or object of an artifact, under its key in the store."""
    name = error.key if isinstance(error, CorruptError) else error.message.partition(": ")[0]
    fault, name = error.message.removeprefix(f"{name}: "), name.removeprefix(prefix)
    known = manifest is not None and name in {entry.key for entry in manifest.objects}
    return CorruptError(prefix + (name if known else MANIFEST), fault, hint=error.hint, **error.facts)
