"""What garbage collection checks before it believes that something is garbage.

A store that answers wrongly (a proxy with an empty answer, a cache, a restored backup) makes names disappear, and
artifacts without a name are deleted. The log of names only grows, so a lost name shows in one of these::

    no tag at all, and artifacts are there                          refused, unless told to trust the listing
    fewer tags or entries than the last collection recorded         refused, unless told to trust the listing
    an entry that was listed before and is not now                  refused (maskreg.registry.garbage.census)
    an entry that this machine has seen, or its catalog knows       refused, unless told to trust the listing
    an artifact's back reference to an entry that is there          refused
      and is not listed
    an artifact's back reference to an entry that is not there      kept, unless told to trust the listing
    more than half of all artifacts, and more than 10, would go     refused, unless told to delete many

A clock that is ahead makes everything look old, also what was pushed a minute ago::

    the store's clock is a day ahead of this machine's              refused, unless told to trust the clock
    nothing was written for a month, by the store's clock           refused, unless told to trust the clock

The record of the last collection is ``gc/last.json``. Collections that end at the same time overwrite each other's;
each states what was there, and no count ever shrinks, so any of them will do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from maskreg.digest import parse_sealed, sealed
from maskreg.errors import ConfigError, CorruptError, DataError, FormatError, NotFoundError, UsageError
from maskreg.ref import Ref
from maskreg.registry.garbage.census import Census
from maskreg.registry.garbage.survey import Survey
from maskreg.registry.index.freshness import lost
from maskreg.registry.registry import Registry
from maskreg.store.backrefs import BackReference
from maskreg.store.entry import entry_key, ref_of
from maskreg.store.listing import looks, not_listed
from maskreg.words import counted

LAST = "gc/last.json"
"""Key of the record of the last collection."""

MANY = 10
"""A run deletes up to this many artifacts without being told to delete many, or up to half of all."""

_SCHEMA = "maskreg.gc-last/1"
_MAX_BYTES = 16 << 10
_DANGLING_LIFE = timedelta(hours=1)

MOST_AHEAD = timedelta(days=1)
"""How far the clock of a store may be ahead of that of the machine that collects."""

LONGEST_PAUSE = timedelta(days=30)
"""For how long nothing may have been written before the clock is doubted."""


def check_listing(registry: Registry, census: Census, survey: Survey) -> None:
    """Refuse a listing of the log that has lost names, as far as the counts tell.

    Raises:
        DataError: it lists no tag beside artifacts that would be deleted, or less than the last collection saw.
        CorruptError: it lacks an entry that this machine has seen, or that the catalog of a local registry knows.
        UnavailableError: such an entry is there, and is not listed.
    """
    totals = census.totals()
    if not totals.tags and survey.candidates and survey.complete:
        raise DataError(
            f"{registry.url} lists no name at all, and {counted(survey.complete, 'artifact', 'is')} there; "
            "nothing was deleted",
            gc_option="trust-listing --dry-run",
            remote=registry.remote_name,
        )
    last = read_last(registry)
    counts = {"tags": totals.tags, "entries": totals.entries}
    for name, number in counts.items():
        if number < last.get(name, 0):
            raise DataError(
                f"{registry.url} lists {number:,} {name}, and {last[name]:,} when garbage was last collected "
                f"({last['at']}, by {last['by']}), though none is ever deleted; nothing was deleted now",
                hint="if the rest was removed on purpose",
                gc_option="trust-listing",
                remote=registry.remote_name,
            )
    _check_memory(registry, census, survey)


def _check_memory(registry: Registry, census: Census, survey: Survey) -> None:
    if not survey.candidates:
        return
    damaged: dict[Ref, CorruptError] = {}
    if (witness := registry.witness) is not None:
        witness.check_registry(registry.uuid)
        seen = witness.numbers(registry.uuid)
        damaged = lost(census.latest(seen), seen, "was seen by this machine", registry.name)
    elif registry.root is not None and not registry.index.is_unmade():
        indexed = registry.index.use(lambda catalog: catalog.all_numbers()) or {}
        damaged = lost(census.latest(indexed), indexed)
    for error in damaged.values():
        if registry.store.head(error.key) is not None:
            raise not_listed(registry.store.url, error.key, "nothing was deleted")
        error.message += "; nothing was deleted"
        raise error


def check_clock(registry: Registry, census: Census, survey: Survey, now: datetime) -> None:
    """Refuse a clock that may be ahead, where something would be deleted because it is old.

    Args:
        registry: whose store it is.
        census: what was listed of the log.
        survey: what was listed of artifacts.
        now: by the store's clock.

    Raises:
        ConfigError: it is far ahead of this machine's, or of when the store was written to last.
    """
    if not survey.candidates:
        return
    last = registry.store.head(LAST)
    times = (census.newest, survey.newest, last.modified if last else None)
    written = max(time for time in times if time is not None)
    fault = ""
    if now - datetime.now(UTC) > MOST_AHEAD:
        fault = f"the clock of {registry.url} says {now:%Y-%m-%d}, and this machine's {datetime.now(UTC):%Y-%m-%d}"
    elif now - written > LONGEST_PAUSE:
        fault = f"nothing was written to {registry.url} for {(now - written).days} days, or its clock is ahead"
    if fault:
        raise ConfigError(
            f"{fault}: what is new looks old then; nothing was deleted",
            hint="set the clock (timedatectl); if it is right",
            gc_option="trust-clock",
            remote=registry.remote_name,
        )


def check_amount(registry: Registry, survey: Survey) -> None:
    """Refuse to delete more than half of all artifacts at once.

    Raises:
        UsageError: more than half, and more than ``MANY``, would go.
    """
    if is_many(survey):
        raise UsageError(
            f"{len(survey.candidates):,} of {counted(survey.artifacts, 'artifact')} in {registry.url} would be "
            "deleted, more than half; nothing was deleted",
            hint="if they are to go",
            gc_option="yes-delete-many",
            remote=registry.remote_name,
        )


def is_many(survey: Survey) -> bool:
    """Whether more than half of all artifacts, and more than ``MANY``, would go."""
    return len(survey.candidates) > max(MANY, survey.artifacts / 2)


def remember(registry: Registry, census: Census, artifacts: int) -> None:
    """Record what a collection that has ended saw, for the next one."""
    totals = census.totals()
    row = {
        "schema": _SCHEMA,
        "tags": totals.tags,
        "entries": totals.entries,
        "artifacts": artifacts,
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "by": registry.by,
    }
    registry.store.put(LAST, sealed(row))


@dataclass
class Witnesses:
    """The back references of artifacts that may be deleted, held against the listing of the log.

    Attributes:
        census: the listing.
        unread: tags that cannot be read.
        keeps_dangling: whether a back reference without its entry keeps an artifact: not of those that a service took
            in and that never had a name.
        damaged: what is wrong with back references; their artifacts are kept.
        dangling: back references to entries that were lost, not written, or not yet, by their keys.
    """

    census: Census
    unread: frozenset[Ref]
    keeps_dangling: bool
    damaged: list[CorruptError] = field(default_factory=list)
    dangling: dict[str, CorruptError] = field(default_factory=dict)

    def examine(self, survey: Survey, now: datetime) -> None:
        """Take artifacts that have to be kept out of the candidates, and write former names into the others.

        Args:
            survey: what was found; it changes.
            now: by the store's clock.

        Raises:
            UnavailableError: the listing lacks an entry that is there.
        """
        for digest, candidate in list(survey.candidates.items()):
            names = self.former_names(candidate.references)
            dangling = [r for r in candidate.references if r.info.key in self.dangling]
            if names is None or (dangling and self.keeps_dangling):
                del survey.candidates[digest]
                # Of a younger one the writer may be about to write the entry.
                self.damaged += [self.dangling[r.info.key] for r in dangling if r.info.modified <= self.census.deadline]
                continue
            references = tuple(r for r in candidate.references if self._is_settled(r, now))
            report = replace(candidate.report, names=names)
            survey.candidates[digest] = replace(candidate, report=report, references=references)
        survey.stale = [r for r in survey.stale if self.former_names([r]) is not None and self._is_settled(r, now)]

    def _is_settled(self, reference: BackReference, now: datetime) -> bool:
        # Of one whose entry is missing the writer may be about to write it.
        return reference.info.key not in self.dangling or reference.info.modified < now - _DANGLING_LIFE

    def former_names(self, references: Iterable[BackReference]) -> tuple[str, ...] | None:
        """Names that an artifact had; None when it has to be kept.

        Args:
            references: its back references.

        Raises:
            UnavailableError: the listing lacks an entry that is there.
        """
        names = set()
        for reference in references:
            try:
                ref = self._ref(reference)
            except CorruptError as error:
                self.damaged.append(error)
                return None
            if ref in self.unread:
                # The entry that cannot be read may be this one.
                return None
            if ref is not None:
                names.add(str(ref))
        return tuple(sorted(names))

    def _ref(self, reference: BackReference) -> Ref | None:
        # None when the entry was never written.
        store = self.census.registry.store
        for turn in looks():
            if turn:
                self.census.look()
            tag = self.census.ledger.by_hash(reference.tag)
            if tag is not None and tag.latest >= reference.n:
                return ref_of(f"{tag.path}/")
            try:
                ref = reference.read(store)
            except NotFoundError:
                return None
            key = entry_key(ref, reference.n)
            if store.head(key) is None:
                self.dangling[reference.info.key] = CorruptError(
                    key,
                    f"this entry of {ref} is not there, and was to name {reference.digest.short}: "
                    "it was lost, or its writer stopped before it",
                    hint="restore it from a copy, or let the artifact go",
                    gc_option="trust-listing",
                    remote=self.census.registry.remote_name,
                )
                return None
            # Written since the listing, or left out of it.
        raise not_listed(store.url, key, "nothing was deleted")


def read_last(registry: Registry) -> dict[str, Any]:
    """The record of the last collection; empty when there was none.

    Raises:
        DataError: it is damaged.
    """
    try:
        data = registry.store.get(LAST, max_bytes=_MAX_BYTES)
    except NotFoundError:
        return {}
    try:
        row = parse_sealed(data, LAST, schema=_SCHEMA, max_bytes=_MAX_BYTES)
        if not all(type(row.get(name)) is int for name in ("tags", "entries", "artifacts")):
            raise FormatError(f"{LAST}: not the record of a collection")
    except DataError as error:
        if not error.hint:
            error.hint, on = "if names are right, a collection writes it again", registry.remote_name
            error.facts |= {"gc_option": "trust-listing", "remote": on}
        raise
    return row
