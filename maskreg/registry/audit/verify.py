"""One audit of a registry: its identity, every tag's log, every artifact, and the catalog against them.

Damage is collected, and never ends the audit. Each kind of thing is counted, so that a report says what it is about::

    identity      maskreg.json is there once a tag is, and can be read
    tags          every entry of every log: parsed, numbered without gaps, linked, immutable tags unmoved; of a remote
                  also whether they continue what this machine has seen of them
    artifacts     every object hashed and opened as readers do; with ``recount`` the mask's bits are counted
    guards        the records that garbage collection checks names by are there and can be read
    catalog       every row sealed, every table summed, and every row what the store gives
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from maskreg.artifact.layout import ARTIFACTS
from maskreg.artifact.presence import listing
from maskreg.catalog.base import REBUILD
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, FormatError, MaskregError, NotFoundError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.audit.guards import damaged_guards
from maskreg.registry.audit.inspect import Inspector
from maskreg.registry.identity import IDENTITY, IDENTITY_HINT, read_identity
from maskreg.registry.index.manifests import digests_in
from maskreg.registry.registry import Registry
from maskreg.result import Result
from maskreg.store.backrefs import back_reference_key, without_back_reference
from maskreg.store.chain import folders, removal
from maskreg.store.entry import REFS, ref_of

_HEX_CHARS = 64


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong.

    Attributes:
        digest: the artifact; None for what belongs to none.
        names: live references that point to it, or the tag whose log it is.
        key: the object, as the store names it; the catalog's address for its rows.
        fault: what is wrong, for a message.
        hint: what to do about it.
    """

    digest: Digest | None
    names: tuple[str, ...]
    key: str
    fault: str
    hint: str


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
        catalog: the catalog was compared with the store.
        damaged: everything that is damaged: by artifact and key, then tags, guards, identity and catalog.
        unchecked: why the catalog was not compared with the store though there is one; None when it was.
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
        unchecked = None if why is None else {"fault": why.message, "hint": why.hint}
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

    Args:
        registry: where it is.
        artifact: which one; everything when left out.
        recount: count the mask's bits too, and compare them with the figures.
        progress: progress callback, in hashed bytes, one phase for each artifact.
        jobs: objects that are hashed at the same time.

    Raises:
        NotFoundError: there is no such name, or nothing of such an artifact.
        ConfigError: the registry has a format that this version does not know.
        UnavailableError: the store does not answer.
    """
    # A damaged identity is part of the report.
    with suppress(FormatError):
        registry.check_format()
    audit = _Audit(registry, Inspector(registry.store, progress, jobs, count=recount))
    unresolved: list[CorruptError] = []
    chosen = sorted(audit.all_digests() if artifact is None else audit.digests_of(artifact, unresolved))
    damaged = [damage for digest in chosen for damage in audit.artifact(digest)]
    ref = artifact if isinstance(artifact, Ref) else None
    tags = entries = 0
    if artifact is None or ref is not None:
        tags, entries = audit.count(ref)
        damaged += audit.logs(ref, unresolved)
    if artifact is None:
        damaged += [*audit.strays(), *audit.guards(jobs)]
        # A service looks after its catalog itself.
        damaged += [*audit.identity(bool(tags)), *([] if registry.served else audit.catalog())]
    inspected = audit.inspector
    has_catalog = artifact is None and bool(registry.catalog_url) and not registry.served and audit.unchecked is None
    counts = (tags, entries, len(chosen), inspected.objects, inspected.bytes)
    return Verified(*counts, recounted=recount, catalog=has_catalog, damaged=tuple(damaged), unchecked=audit.unchecked)


def joined(reports: Sequence[Verified]) -> Verified:
    """The reports of several artifacts, at least one, as one: counts are added, and damage is named once."""
    first = reports[0]
    return replace(
        first,
        tags=sum(report.tags for report in reports),
        entries=sum(report.entries for report in reports),
        artifacts=sum(report.artifacts for report in reports),
        objects=sum(report.objects for report in reports),
        bytes=sum(report.bytes for report in reports),
        damaged=tuple(dict.fromkeys(damage for report in reports for damage in report.damaged)),
    )


class _Audit:
    def __init__(self, registry: Registry, inspector: Inspector) -> None:
        self.inspector = inspector
        self.unchecked: MaskregError | None = None
        self._registry = registry
        self._store = registry.store
        self._names: dict[Digest, list[str]] = defaultdict(list)
        # Damaged entries are reported by the audit of the logs.
        self._live = [entry for entry in registry.refs.heads([]) if not entry.deleted]
        for entry in self._live:
            if entry.digest is not None:
                self._names[entry.digest].append(str(entry.ref))

    def digests_of(self, artifact: Ref | Digest, unresolved: list[CorruptError]) -> set[Digest]:
        # What is wrong with the log of a tag is appended to unresolved; the artifact is then the one that it ends at.
        if isinstance(artifact, Ref):
            try:
                return {self._registry.resolve(artifact).digest}
            except CorruptError as error:
                unresolved.append(error)
            return {*filter(None, [artifact.digest or self._latest(artifact)])}
        if artifact not in self._names and not listing(self._store, artifact):
            raise NotFoundError(
                f"artifact {artifact.short} is not in {self._registry.url}", hint=self._registry.listing_step
            )
        return {artifact}

    def _latest(self, ref: Ref) -> Digest | None:
        return next((entry.digest for entry in self._live if entry.ref == replace(ref, digest=None)), None)

    def all_digests(self) -> set[Digest]:
        return {*self._names, *digests_in(self._store)}

    def artifact(self, digest: Digest) -> Iterator[Damage]:
        names = tuple(sorted(self._names[digest]))
        for error in self.inspector.inspect(digest):
            yield _damage(digest, names, error, self._repair(error, names))

    def logs(self, ref: Ref | None, known: list[CorruptError]) -> Iterator[Damage]:
        try:
            damaged = self._registry.audit(ref)
        except FormatError:
            # Without an identity nobody knows what was seen of this registry; the logs are there all the same.
            damaged = self._registry.refs.audit(ref and replace(ref, digest=None))
        for error in {(error.key, error.message): error for error in [*damaged, *known]}.values():
            names = (str(ref_of(error.key)),) if error.key.startswith(REFS) else ()
            yield _damage(None, names, error, error.hint)

    def count(self, ref: Ref | None) -> tuple[int, int]:
        prefix = REFS if ref is None else f"{REFS}{ref.path}/"
        tags = folders(self._store.list(prefix))
        return len(tags), sum(len(folder.numbers) for folder in tags.values())

    def strays(self) -> Iterator[Damage]:
        # Folders beside the artifacts that no digest has.
        seen = set()
        for info in self._store.list(ARTIFACTS):
            name = info.key.removeprefix(ARTIFACTS).partition("/")[0]
            if name not in seen and (len(name) != _HEX_CHARS or set(name) - set("0123456789abcdef")):
                seen.add(name)
                hint = f"look at it, then remove it: {removal(self._registry.url, info.key)}"
                yield Damage(None, (), info.key, "not below the folder of an artifact", hint)

    def guards(self, jobs: int) -> Iterator[Damage]:
        for error in damaged_guards(self._registry, jobs):
            yield _damage(None, (), error, error.hint)
        for entry in without_back_reference(self._store, self._live):
            assert entry.digest is not None  # nothing else is live
            key = back_reference_key(entry.digest, entry.ref, entry.n)
            fault = f"missing: gc cannot check that a list of names lacks {entry.ref}"
            hint = f"maskreg annotate {entry.ref} --description TEXT writes another entry, with one"
            yield Damage(entry.digest, (str(entry.ref),), key, fault, hint)

    def identity(self, used: bool) -> Iterator[Damage]:
        try:
            if not read_identity(self._store) and used:
                yield Damage(None, (), IDENTITY, "missing, and the registry has tags", IDENTITY_HINT)
        except FormatError as error:
            yield Damage(None, (), IDENTITY, error.message.rpartition(f"{IDENTITY}: ")[2], IDENTITY_HINT)

    def catalog(self) -> Iterator[Damage]:
        index = self._registry.index
        for wrong in index.audit():
            fault = wrong if isinstance(wrong, str) else wrong.message.removeprefix(f"{_key(wrong)}: ")
            hint = REBUILD
            if isinstance(wrong, MaskregError):
                hint = wrong.hint
            if hint.startswith("maskreg db "):
                # The catalog does not know which remote it belongs to.
                hint += self._registry.remote_option
            if isinstance(wrong, MaskregError) and not isinstance(wrong, DataError):
                # A database that is down, or refuses, says nothing about what is in it.
                wrong.hint = hint
                self.unchecked = wrong
            else:
                yield Damage(None, (), "catalog", fault, hint)

    def _repair(self, error: CorruptError, names: tuple[str, ...]) -> str:
        local = self._registry.root is not None
        if not names:
            return error.hint.replace("<name>", "NAME") or f"remove it: {removal(self._registry.url, error.key)}"
        if local or "publish" in error.hint:
            return error.hint.replace("<name>", names[0]) or f"maskreg pull {names[0]}"
        # A push sends only what is missing.
        push = f"maskreg push {names[0]} --remote {self._registry.name}"
        if self._store.head(error.key) is None:
            return f"from a registry that has it: {push}"
        return f"{removal(self._registry.url, error.key)}, then, from a registry that has it: {push}"


def _damage(digest: Digest | None, names: tuple[str, ...], error: CorruptError, hint: str) -> Damage:
    return Damage(digest, names, error.key, error.message.removeprefix(f"{error.key}: "), hint)


def _key(error: MaskregError) -> str:
    return error.key if isinstance(error, CorruptError) else ""
