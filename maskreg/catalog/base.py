"""The contract of a catalog: an index over a registry, and records that only it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, Self

from maskreg.catalog.query import Answer, Query, SearchResult
from maskreg.catalog.records import Event, Indexed, Measurement
from maskreg.digest import Digest

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest
    from maskreg.ref import Ref
    from maskreg.store.reflog import RefEntry


class Searchable(Protocol):
    """An index that can be searched, and that takes in what it lacks."""

    keeps_up: bool
    """Whether it takes in by itself what is appended to the ref log, and logs that: then nobody else has to."""

    def put_artifact(self, digest: Digest, manifest: Manifest) -> None:
        """Index an artifact; indexing it again changes nothing."""

    def put_ref(self, entry: RefEntry) -> None:
        """Index an entry of a ref log; one that is older than the indexed entry changes nothing."""

    def answer(self, query: Query) -> Answer:
        """What matches, and what the index knows it lacks.

        Raises:
            UsageError: the query is malformed.
        """


class Catalog(Searchable, Protocol):
    """An open catalog; safe to use from many threads, except one in memory.

    Artifacts and refs in it are an index: ``rebuild`` recreates them from the store. Measurements, events and seen
    sources exist nowhere else.

    Every method raises ``TryAgainError`` when a lock is held for too long, ``CorruptError`` when the catalog is
    damaged, ``NotAllowedError`` when it may not be used or written, and ``UnavailableError`` when its server does
    not answer.
    """

    safe_refs: bool
    """Whether ``lock`` serializes every writer of the registry, on any machine."""

    def close(self) -> None:
        """Close every connection."""

    def __enter__(self) -> Self:
        """The catalog itself."""

    def __exit__(self, *_: object) -> None:
        """Close it."""

    # The index

    def drop_artifact(self, digest: Digest) -> None:
        """Remove an artifact from the index; its measurements stay."""

    def get(self, digest: Digest) -> Indexed | None:
        """The indexed facts of an artifact; None when it is not indexed."""

    def number(self, ref: Ref) -> int:
        """Number of the indexed entry of a tag, which may say that it was removed; 0 when there is none."""

    def numbers(self, refs: Collection[Ref]) -> dict[Ref, int]:
        """Number of the indexed entry of each of these tags that is indexed."""

    def all_numbers(self) -> dict[Ref, int]:
        """The same of every tag, however many there are."""

    def followed(self) -> int | None:
        """Generation of the store's journal up to which the index took in what moved; None when it never did."""

    def follow(self, generation: int) -> None:
        """Remember that the index took in what moved up to this generation of the store's journal."""

    def search(self, query: Query = ...) -> list[SearchResult]:
        """Live refs that match, in the query's order; refs whose artifact is not indexed are left out.

        Raises:
            UsageError: the query is malformed.
        """

    def check(self) -> None:
        """Compare the whole content with what was written, row by row.

        Raises:
            CorruptError: the catalog is damaged.
        """

    def check_file(self) -> None:
        """Check the structure of the catalog's file alone; do nothing where a server does that.

        Raises:
            CorruptError: the file is damaged.
        """

    def differing(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        except_refs: Collection[Ref] = (),
        except_artifacts: Collection[Digest] = (),
    ) -> tuple[str, ...]:
        """What the index has otherwise than the store, or has and the store has not; one sentence each.

        Args:
            entries: the newest entry of every ref, deleted ones included.
            manifests: of every artifact.
            except_refs: refs that may be in the index though they are not in ``entries``.
            except_artifacts: artifacts that may be in the index though they are not in ``manifests``.
        """

    def filled_from(self) -> str | None:
        """Uuid of the registry that the index was last rebuilt from; None when it never was."""

    def rebuild(
        self,
        entries: Iterable[RefEntry],
        manifests: Iterable[tuple[Digest, Manifest]],
        *,
        registry: str = "",
        unread: Mapping[str, str] = ...,
        followed: int | None = None,
    ) -> tuple[int, int, int]:
        """Replace the index, atomically; measurements, events and seen sources stay, except damaged ones.

        Writers wait until it ends. When reading ``entries`` or ``manifests`` fails, the old index stays.

        Args:
            entries: the newest entry of every ref, deleted ones included.
            manifests: of every artifact.
            registry: uuid of the registry they come from, for ``filled_from``.
            unread: keys of ref entries that cannot be read, and why, for :meth:`answer`; looked at when ``entries``
                and ``manifests`` have ended.
            followed: generation of the store's journal at which reading them began, for :meth:`followed`.

        Returns:
            How many refs, deleted ones included, and how many artifacts were indexed; and how many measurements and
            events were damaged and removed.
        """

    # What only the catalog holds

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement. The latest ``rlvr_overlap`` of a whole mask also becomes searchable."""

    def measurements(self, digest: Digest, *, metrics: Collection[str] = (), against: str = "") -> list[Measurement]:
        """Measurements of an artifact, in the order of recording.

        Args:
            digest: the artifact.
            metrics: those of these alone; any when empty.
            against: those against this alone; any when empty.
        """

    def log(self, event: Event) -> None:
        """Append an event to the audit log."""

    def events(
        self,
        *,
        subject: str = "",
        action: str = "",
        by: str = "",
        project: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """The newest events of the audit log, newest first; all conditions that are given must hold.

        Args:
            subject: the ref, digest or key it happened to.
            action: what was done.
            by: who did it.
            project: of whose names it happened to one; None for any event.
            since: not before (aware).
            before: only events with a lower number.
            limit: at most this many.
        """

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` is at ``path`` now."""

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the checkpoint of identity ``root`` was seen, the latest first."""

    # Serializing writers

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the exclusive lock ``name`` of this catalog until the block ends.

        Raises:
            TryAgainError: it was held by another for too long.
        """
